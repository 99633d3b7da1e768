from pathlib import Path
from random import Random

import pytest

from spacy_elq.corpora.templates import OWN_TEMPLATES, Templates, read_templates
from spacy_elq.errors import ELQError


@pytest.fixture
def read(tmp_path):
    def read_text(text, *others):
        path = tmp_path / "templates.txt"
        path.write_text(text, encoding="utf8")
        return read_templates([path, *others])

    return read_text


def choices(templates, label, **settings):
    return {templates.choose(label, Random(i), **settings) for i in range(200)}


def test_headings_say_what_templates_are_for(read):
    text = """what is {}
# PERSON, Author
when was {} born
{} or {}
# none
hello
# fillers
the bakery
# general
{} vs {}
#
#{} posts
"""
    assert read(text) == Templates(
        single={
            "general": ["what is {}", "#{} posts"],
            "person": ["when was {} born"],
            "author": ["when was {} born"],
        },
        several={"person": ["{} or {}"], "author": ["{} or {}"], "general": ["{} vs {}"]},
        none=["hello"],
        fillers=["the bakery"],
    )


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("what is {}\nwhat is it", 2, "expected a template with {} in place of each name"),
        ("what is {name}", 1, "expected a template with {} in place of each name"),
        ("{} and {", 1, "expected a template with {} in place of each name"),
        ("[{}](Q1)", 1, "expected a template with {} in place of each name"),
        ("# none\nwhat is {}", 2, "expected a template with no {}, below '# none'"),
        ("# fillers\nthe {}", 2, "expected a template with no {}, below '# fillers'"),
        ("#PERSON\nwho is {}", 1, "expected a template with {} in place of each name, below '# general'"),
    ],
)
def test_what_is_no_template(read, text, line, expected):
    with pytest.raises(ELQError) as error:
        read(text)
    assert f"templates.txt, line {line}: {expected}" in str(error.value)


def test_files_are_put_together_and_default_stands_for_ours(read):
    assert read_templates() == read_templates([Path("default")]) == read_templates([OWN_TEMPLATES])
    both = read("# PERSON\n{} salary\n", Path("default"))
    assert both.none == read_templates().none
    assert both.single["person"] == ["{} salary", *read_templates().single["person"]]


def test_there_are_enough_templates_of_ours():
    templates = read_templates()
    lines = {
        line for group in (templates.single, templates.several) for own in group.values() for line in own
    }
    assert len(lines) >= 80
    assert len(templates.none) >= 25
    assert {"general", "person", "org", "gpe", "loc", "fac", "product", "work_of_art", "event"} <= set(
        templates.single
    )


def test_templates_of_the_label_and_general_ones_are_chosen():
    templates = Templates(single={"general": ["what is {}"], "person": ["who is {}"]})
    assert choices(templates, "PERSON") == {"who is {}", "what is {}"}
    assert choices(templates, "TENT") == choices(templates, "") == {"what is {}"}
    assert choices(templates, "PERSON", several=True) == {None}
    alone = Templates(single={"person": ["who is {}"]})
    assert choices(alone, "person") == {"who is {}"}
    assert choices(alone, "TENT") == {None}


def test_texts_that_name_nothing():
    def nothing(templates):
        return {templates.nothing(Random(i)) for i in range(100)}

    general = {"general": ["what is {}"]}
    assert nothing(Templates(single=general, none=["hello"], fillers=["it"])) == {"hello", "what is it"}
    assert nothing(Templates(single=general, none=["hello"])) == {"hello"}
    assert nothing(Templates(single=general, fillers=["it"])) == {"what is it"}
    assert nothing(Templates(none=["hello"], fillers=["it"])) == {"hello"}
    assert nothing(Templates(single=general)) == {None}
