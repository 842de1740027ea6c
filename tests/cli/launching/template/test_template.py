"""The template language: what Go's documentation says of it, by example; and properties for any input."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trio_cogment.cli.launching.template import Template, TemplateError

DATA = {"PORT": "9000", "HOST": "here", "EMPTY": "", "__1": "first", "ODD": "a\udcffb"}


def rendered(source: str, **more: str) -> str:
    return Template(source).render(DATA | more)


CASES = [
    ("", ""),
    ("plain { text } }}", "plain { text } }}"),
    ("{{.PORT}}", "9000"),
    ("grpc://{{ .HOST }}:{{.PORT}}/", "grpc://here:9000/"),
    ("{{.__1}}", "first"),
    ("{{.NOTHING}}", "<no value>"),
    ("{{.EMPTY}}", ""),
    ("{{$.PORT}}", "9000"),
    # Literals.
    ("{{`{{.PORT}}`}}", "{{.PORT}}"),
    ('{{"{{"}}.PORT{{"}}"}}', "{{.PORT}}"),
    (r'{{"a\t\"\x41\101\u00e9\\"}}', 'a\t"AAé\\'),
    (r"{{'a'}} {{'\n'}} {{'\''}}", "97 10 39"),
    ("{{1}} {{0x1F}} {{017}} {{0b11}} {{1_000}} {{-3}} {{+4}}", "1 31 15 3 1000 -3 4"),
    (
        "{{1.5}} {{1e3}} {{1e6}} {{1e-7}} {{.5}} {{123456789.0}} {{0.0}} {{0x1p4}}",
        "1.5 1000 1e+06 1e-07 0.5 1.23456789e+08 0 16",
    ),
    ("{{true}} {{false}}", "true false"),
    # Trim markers and comments.
    ("a  {{- .PORT -}}  b", "a9000b"),
    ("a \n {{- /* nothing */ -}} \n b", "ab"),
    ("a {{/* a {{ comment }} */}} b", "a  b"),
    ("{{-3}}", "-3"),
    ("{{- -3 -}} x", "-3x"),
    ("{{print 3 -}} x", "3x"),
    # Conditions.
    ("{{if .HOST}}yes{{end}}", "yes"),
    ("{{if .EMPTY}}yes{{else}}no{{end}}", "no"),
    ("{{if .NOTHING}}a{{else if .EMPTY}}b{{else if eq .PORT `9000`}}c{{else}}d{{end}}", "c"),
    ("{{if not .NOTHING}}none{{end}}", "none"),
    ("{{if and .HOST (eq .PORT `9000`)}}both{{end}}", "both"),
    ("{{with .HOST}}<{{.}} {{$.PORT}}>{{end}}", "<here 9000>"),
    ("{{with .EMPTY}}<{{.}}>{{else}}empty{{end}}", "empty"),
    ("{{with .EMPTY}}a{{else with .HOST}}{{.}}{{end}}", "here"),
    # Defaults.
    ("{{or .NOTHING `9001`}}", "9001"),
    ("{{or .EMPTY .NOTHING .PORT `1`}}", "9000"),
    ("{{or .EMPTY .NOTHING}}", "<no value>"),
    ("{{and .PORT .EMPTY .HOST}}", ""),
    ("{{.NOTHING | or .EMPTY}}", "<no value>"),
    # What decides is the last that is evaluated.
    ("{{or .PORT (index .PORT 99)}}", "9000"),
    ("{{and .EMPTY (index .PORT 99)}}", ""),
    # Comparisons.
    ("{{eq .PORT `1` `9000`}} {{ne .PORT `9000`}}", "true false"),
    ("{{lt `a` `b`}} {{le `b` `b`}} {{gt `a` `b`}} {{ge 2 1}} {{lt 1.5 2.5}}", "true true false true true"),
    ("{{eq .NOTHING `x`}} {{eq .NOTHING nil}} {{ne .NOTHING `x`}}", "false true true"),
    ("{{eq true true}} {{eq 1 1}}", "true true"),
    # Functions.
    ("{{len .PORT}} {{len `é`}}", "4 2"),
    ("{{index . `PORT`}} {{index . `NOTHING`}}{{index .PORT 0}}", "9000 57"),
    ("{{slice .PORT 1 3}} {{slice .PORT 2}} {{slice .HOST}}", "00 00 here"),
    ("{{print `a` 1 2 `b` .NOTHING}}", "a1 2b<nil>"),
    ("{{print 1 true 2.5}}", "1 true 2.5"),
    ("{{println `a` 1}}", "a 1\n"),
    ('{{html `<a href="x">\'&`}}', "&lt;a href=&#34;x&#34;&gt;&#39;&amp;"),
    ("{{js `<'\\\"=&>`}}", "\\u003C\\'\\\\\\\"\\u003D\\u0026\\u003E"),
    ("{{js `\n\u2028`}}", "\\u000A\\u2028"),
    ("{{urlquery `a b/c?~é`}}", "a+b%2Fc%3F~%C3%A9"),
    ("{{printf `%s:%s` .HOST .PORT}}", "here:9000"),
    # Pipelines.
    ("{{.PORT | printf `%6s`}}", "  9000"),
    ("{{`a` | print `b` | len}}", "2"),
    ("{{(printf `%s` .HOST) | len}}", "4"),
    ("{{(.).PORT}} {{($).HOST}}", "9000 here"),
    ("{{. | len | lt 1}}", "true"),
    # Variables.
    ("{{$x := .PORT}}{{$x}}", "9000"),
    ("{{$x := 1}}{{if true}}{{$x = 2}}{{end}}{{$x}}", "2"),
    ("{{$x := 1}}{{if true}}{{$x := 2}}{{end}}{{$x}}", "1"),
    ("{{if $x := .HOST}}{{$x}}{{end}}", "here"),
    ("{{$x := .}}{{$x.PORT}}", "9000"),
    # Loops.
    ("{{range 3}}{{.}},{{end}}", "0,1,2,"),
    ("{{range $i := 3}}{{$i}}{{end}}", "012"),
    ("{{range 0}}x{{else}}none{{end}}", "none"),
    ("{{range .NOTHING}}x{{else}}none{{end}}", "none"),
    ("{{range 5}}{{if eq . 1}}{{continue}}{{end}}{{if eq . 3}}{{break}}{{end}}{{.}}{{end}}", "02"),
    ("{{$n := 0}}{{range 3}}{{$n = .}}{{end}}{{$n}}", "2"),
    ("{{.ODD}}{{len .ODD}}", "a\udcffb3"),
    ("{{\n  .PORT\n}}", "9000"),
]


@pytest.mark.parametrize(("source", "expected"), CASES, ids=[source[:40] for source, _ in CASES])
def test_rendering(source: str, expected: str) -> None:
    assert rendered(source) == expected


def test_range_over_all_variables() -> None:
    source = "{{range $name, $value := .}}{{$name}}={{$value}} {{end}}"
    assert Template(source).render({"b": "2", "a": "1"}) == "a=1 b=2 "
    assert Template("{{range .}}{{.}}{{end}}").render({"b": "2", "a": "1"}) == "12"
    assert Template("{{.}}").render({"b": "2", "a": "1"}) == "map[a:1 b:2]"


def test_names_of_what_is_missing() -> None:
    missing: set[str] = set()
    Template("{{.A}} {{or .B `x`}} {{if .C}}{{end}} {{.D}} {{.E | printf `%v`}}").render({"D": ""}, missing)
    assert missing == {"A"}


WRONG = [
    ("{{.PORT", "not closed"),
    ("{{", "not closed"),
    ("{{/* x", "a comment is not closed"),
    ("{{/* x */ .PORT}}", "right after a comment"),
    ("{{}}", "expected a value"),
    ("{{ | print}}", "expected a value"),
    ("{{print |}}", "expected a value"),
    ('{{"x}}', "a quote is not closed"),
    ("{{`x}}", "a quote is not closed"),
    ("{{'ab'}}", "expected one character"),
    (r"{{'\400'}}", "is not a byte"),
    (r'{{"\q"}}', "unknown escape"),
    (r'{{"\ud800"}}', "is not a character"),
    ("{{09}}", "expected a number, got"),
    ("{{1x}}", "expected a number, got"),
    ("{{99999999999999999999}}", "64 bits"),
    ("{{PORT}}", "unknown function 'PORT'; a variable is written .PORT"),
    ("{{$x}}", "unknown variable $x; a variable of the environment is written .x"),
    ("{{$x = 1}}", "unknown variable $x"),
    ("{{if true}}{{$x := 1}}{{end}}{{$x}}", "unknown variable $x"),
    ("{{end}}", "without a structure"),
    ("{{else}}", "without a structure"),
    ("{{if .A}}", "{{if}} without {{end}}"),
    ("{{if .A}}{{else}}{{else}}{{end}}", "second {{else}}"),
    ("{{if}}{{end}}", "expected a value"),
    ("{{if .A}}{{end x}}", "unexpected 'x'"),
    ("{{range .A}}{{else range .B}}{{end}}", "unexpected 'range'"),
    ("{{break}}", "outside of {{range}}"),
    ("{{range 2}}{{end}}{{continue}}", "outside of {{range}}"),
    ("{{define `x`}}{{end}}", "'define' is not supported"),
    ("{{template `x`}}", "'template' is not supported"),
    ("{{nil}}", "nil is not a command"),
    ("{{.A .B}}", "only a function takes arguments"),
    ("{{print | .A}}", "only a function takes arguments"),
    ("{{1 | 2}}", "only a function takes arguments"),
    ("{{(print 1}}", "unexpected '}}'"),
    ("{{print 1)}}", "unexpected ')'"),
    ("{{print#}}", "unexpected '#'"),
    ("{{.A,.B}}", "unexpected ','"),
    ("{{.A$x}}", "unexpected '$'"),
    ("{{" + "(" * 60 + "1" + ")" * 60 + "}}", "within each other"),
    ("{{if 1}}" * 60 + "{{end}}" * 60, "within each other"),
]


@pytest.mark.parametrize(("source", "expected"), WRONG, ids=[source[:30] for source, _ in WRONG])
def test_what_is_wrong_is_found_without_data(source: str, expected: str) -> None:
    with pytest.raises(TemplateError) as caught:
        Template(source)
    assert expected in str(caught.value)


REFUSED = [
    ("{{eq .PORT 9000}}", "write the other value in quotes"),
    ("{{eq 1 1.0}}", "cannot compare"),
    ("{{eq .PORT}}", "two values at least"),
    ("{{eq . `x`}}", "all variables cannot be compared"),
    ("{{lt true false}}", "cannot compare"),
    ("{{lt .NOTHING `x`}}", "cannot compare"),
    ("{{len .NOTHING}}", "expected a text, got nothing"),
    ("{{len 3}}", "expected a text"),
    ("{{index .PORT 4}}", "from 0 to 3"),
    ("{{index .PORT `0`}}", "not an index"),
    ("{{index 3 0}}", "not an index"),
    ("{{slice .PORT 3 1}}", "lower one first"),
    ("{{slice .PORT 0 9}}", "from 0 to 4"),
    ("{{slice 1}}", "expected a text"),
    ("{{printf 1}}", "expected a text as the format"),
    ("{{printf}}", "expected 1 or more arguments, got 0"),
    ("{{not}}", "expected 1 arguments, got 0"),
    ("{{ne 1 2 3}}", "expected 2 arguments, got 3"),
    ("{{slice .A 1 2 3}}", "expected 1 to 3 arguments, got 4"),
    ("{{and}}", "expected 1 or more"),
    ("{{.PORT.X}}", "has no variables in it"),
    ("{{range .PORT}}{{end}}", "cannot go through"),
    ("{{range 200000}}{{end}}", "rounds"),
    ("{{range 2}}{{printf `%1000000d` 1}}{{end}}", "characters"),
]


@pytest.mark.parametrize(("source", "expected"), REFUSED, ids=[source for source, _ in REFUSED])
def test_what_functions_refuse(source: str, expected: str) -> None:
    template = Template(source)
    with pytest.raises(TemplateError) as caught:
        template.render(DATA)
    assert expected in str(caught.value)


# For any input


@given(st.text())
def test_text_without_actions_stays_as_it_is(text: str) -> None:
    text = text.replace("{{", "{")
    assert rendered(text) == text


@given(st.text(st.characters(exclude_characters="`", exclude_categories=["Cs"])))
def test_whatever_is_quoted_stays_as_it_is(text: str) -> None:
    assert rendered(f"{{{{`{text}`}}}}") == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_quoting_and_reading_are_each_others_inverse(text: str) -> None:
    quoted = Template("{{printf `%q` .TEXT}}").render({"TEXT": text})
    assert rendered(f"{{{{{quoted}}}}}") == text


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), st.text(), min_size=1))
def test_every_variable_is_found_whatever_is_in_it(data: dict[str, str]) -> None:
    for name, value in data.items():
        assert Template(f"<{{{{.{name}}}}}>").render(data) == f"<{value}>"
        assert Template(f"{{{{index . `{name}`}}}}").render(data) == value
        assert Template(f"{{{{if .{name}}}}}1{{{{else}}}}0{{{{end}}}}").render(data) == str(int(bool(value)))


PIECES = st.sampled_from(
    [
        *("{{", "}}", "{{-", "-}}", " ", "-", ".", ".A", "$", "$x", ":=", "=", "|", "(", ")", ",", "'", '"', "`", "\\"),
        *("if", "else", "end", "range", "with", "break", "/*", "*/", "print", "eq", "len", "and", "printf", "1", "0x"),
        *("nil", "true", "%d", "%", "\n", "é", "\0", "1e", "index", "slice"),
    ]
)


@given(st.lists(PIECES | st.text(max_size=3)).map("".join))
@example("{{printf `%[9]*d` 1}}")
@example("{{range 3}}{{$ = 1}}{{end}}")
def test_nothing_else_than_its_own_error_comes_out(source: str) -> None:
    try:
        assert isinstance(Template(source).render({"A": "1"}), str)
    except TemplateError as error:
        assert str(error)  # noqa: PT017  either outcome is right
