"""Files, folders and records as work lists: what is paired with what, what is refused, and what stays on the list."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from amk.contracts.errors import MissingFieldError, NoKernelsError, UnknownFieldRoleError
from amk.contracts.forms import Work, read_works
from amk.contracts.forms.entries import NAME_LENGTH_MAX, SOURCE_BYTES_MAX
from amk.contracts.sources import Text
from amk.errors import UnreadableInputError

BOTH = "class Model: ...\nclass ModelNew: ...\n"
OLD = "class Model: ...\n"
NEW = "class ModelNew: ...\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def texts(work: Work) -> tuple[str, str]:
    assert work.kernel is not None, work.why
    reference, candidate = work.kernel.reference, work.kernel.candidate
    assert isinstance(reference, Text)
    assert isinstance(candidate, Text)
    assert (reference.attribute, candidate.attribute) == ("Model", "ModelNew")
    return reference.code, candidate.code


def records(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# --- files and folders -----------------------------------------------------------------------------------------------


def test_one_file_holds_both(tmp_path: Path) -> None:
    write(tmp_path, {"relu.py": BOTH})
    (work,) = read_works(tmp_path / "relu.py")
    assert (work.name, texts(work)) == ("relu", (BOTH, BOTH))
    assert work.kernel is not None
    assert work.kernel.candidate.paths == (str(tmp_path.resolve()),)


@pytest.mark.parametrize("named", ["relu.py", "relu_new.py"])
def test_a_file_and_its_candidate_beside_it(tmp_path: Path, named: str) -> None:
    write(tmp_path, {"relu.py": OLD, "relu_new.py": NEW})
    (work,) = read_works(tmp_path / named)
    assert (work.name, texts(work)) == ("relu", (OLD, NEW))


def test_a_folder_is_gone_through_with_its_subfolders(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "b.py": BOTH,
            "a/softmax.py": OLD,
            "a/softmax_new.py": NEW,
            "a/b.py": BOTH,
            "helper.py": "def helper(): ...\n",
            "__init__.py": "",
            ".hidden/x.py": BOTH,
            "__pycache__/x.py": BOTH,
            "notes.md": "",
        },
    )
    works = {work.name: work for work in read_works(tmp_path)}
    assert list(works) == ["a-b", "a-softmax", "b", "helper"]
    assert texts(works["a-softmax"]) == (OLD, NEW)
    assert works["helper"].why == "it does not define ModelNew, and there is no helper_new.py beside it"


def test_references_lie_in_a_folder_of_their_own(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "new/level1/relu.py": NEW,
            "new/level1/gelu_new.py": NEW,
            "new/level2/relu.py": NEW,
            "new/other.py": NEW,
            "new/refs/level1/relu.py": OLD + "# one",
            "new/refs/level2/relu.py": OLD + "# two",
            "new/refs/gelu.py": OLD + "# gelu",
        },
    )
    works = {work.name: work for work in read_works(tmp_path / "new", reference=tmp_path / "new/refs")}
    assert list(works) == ["level1-gelu_new", "level1-relu", "level2-relu", "other"]
    assert texts(works["level1-relu"]) == (OLD + "# one", NEW)
    assert texts(works["level2-relu"]) == (OLD + "# two", NEW)
    assert texts(works["level1-gelu_new"]) == (OLD + "# gelu", NEW)
    assert works["other"].why == "there is no reference of its name"


def test_one_reference_for_all(tmp_path: Path) -> None:
    write(tmp_path, {"new/a.py": NEW, "new/b.py": NEW, "relu.py": OLD})
    works = list(read_works(tmp_path / "new", reference=tmp_path / "relu.py"))
    assert [(work.name, texts(work)) for work in works] == [("a", (OLD, NEW)), ("b", (OLD, NEW))]
    (work,) = read_works(tmp_path / "new/a.py", reference=tmp_path / "relu.py")
    assert texts(work) == (OLD, NEW)


def test_what_cannot_be_read_stays_on_the_list(tmp_path: Path) -> None:
    write(tmp_path, {"good.py": BOTH})
    (tmp_path / "latin.py").write_bytes("# é\nclass ModelNew: ...".encode("latin-1"))
    (tmp_path / "huge.py").write_bytes(b"#" * (SOURCE_BYTES_MAX + 1))
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    os.mkfifo(tmp_path / "pipe.py")  # reading it would wait for ever
    works = {work.name: work for work in read_works(tmp_path)}
    assert list(works) == ["good", "huge", "latin"]
    assert works["good"].kernel is not None
    assert "cannot be read" in works["latin"].why
    assert "larger than 4 MiB" in works["huge"].why


def test_a_list_is_read_when_it_is_gone_through(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": BOTH, "b.py": BOTH})
    works = read_works(tmp_path)
    (tmp_path / "b.py").unlink()
    assert len(works) == 2
    assert [bool(work.kernel) for work in works] == [True, False]
    assert [work.name for work in works] == ["a", "b"]


# --- records ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        ({"ref_arch_src": OLD, "custom_cuda_code": NEW, "problem_name": "relu", "level": 1}, ()),
        ({"reference": OLD, "candidate": NEW, "name": "relu"}, ()),
        ({"old": OLD, "new": NEW, "called": "relu"}, ("reference=old", "candidate=new", "name=called")),
        ({"reference": "x", "old": OLD, "candidate": NEW, "name": "relu"}, ("reference=old",)),
    ],
)
def test_fields_are_found_or_named(tmp_path: Path, record: dict[str, object], fields: tuple[str, ...]) -> None:
    for path in (records(tmp_path / "a.jsonl", record), tmp_path / "a.json"):
        if path.suffix == ".json":
            path.write_text(json.dumps([record]))
        works = read_works(path, fields=fields)
        (work,) = works
        assert len(works) == 1
        assert (work.name, texts(work), work.origin) == ("relu", (OLD, NEW), f"{path}:1")


def test_one_text_with_both_classes(tmp_path: Path) -> None:
    (work,) = read_works(records(tmp_path / "a.jsonl", {"source": BOTH, "id": 7}))
    assert (work.name, texts(work)) == ("7", (BOTH, BOTH))


def test_an_object_of_named_records(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"relu": {"source": BOTH}, "gelu": {"source": BOTH}}))
    assert [work.name for work in read_works(tmp_path / "a.json")] == ["relu", "gelu"]


def test_a_bad_record_does_not_end_the_list(tmp_path: Path) -> None:
    good = {"reference": OLD, "candidate": NEW, "name": "good"}
    path = tmp_path / "a.jsonl"
    lines = [
        json.dumps({"level": 1}),
        json.dumps(good),
        '{"reference": ',
        json.dumps([1, 2]),
        json.dumps({"reference": OLD, "name": "no candidate"}),
        json.dumps({"reference": OLD, "candidate": "  ", "name": "blank"}),
        json.dumps({"reference": 3, "candidate": NEW, "name": {"a": 1}}),
        "[" * 100_000,
        "\xff",
        "",
        json.dumps(good),
    ]
    path.write_bytes("\n".join(lines).encode("latin-1"))
    works = list(read_works(path))
    assert [work.name for work in works if work.kernel] == ["good", "good-2"]
    whys = [work.why for work in works if not work.kernel]
    assert len(works) == 10
    assert whys[0] == "it has no field 'reference'; fields found: level"
    assert whys[1].startswith("it is not JSON")
    assert whys[2] == "it is not an object"
    assert whys[3] == "it has no field 'candidate'; fields found: reference, name"
    assert whys[4] == "it has no text in its field 'candidate'; fields found: reference, candidate, name"
    assert whys[5].startswith("it has no text in its field 'reference'")
    assert whys[6].startswith("it is not JSON")
    assert whys[7].startswith("it is not JSON")


@pytest.mark.parametrize("field", ["novel=x", "reference", "candidate=", "=x"])
def test_a_role_that_does_not_exist_is_an_error_with_those_that_do(tmp_path: Path, field: str) -> None:
    path = records(tmp_path / "a.jsonl", {"source": BOTH})
    with pytest.raises(UnknownFieldRoleError, match="reference, candidate, source, name") as raised:
        read_works(path, fields=[field])
    assert field in raised.value.message


@pytest.mark.parametrize(
    ("record", "fields", "said", "mend"),
    [
        ({"a": OLD, "b": NEW}, (), r"no record has a reference .*; fields found: a, b", "--field reference=FIELD"),
        ({"reference": OLD, "b": NEW}, (), r"no record has a candidate .*found: reference, b", "candidate=FIELD"),
        ({"reference": OLD, "b": NEW}, ("candidate=c",), r"a field 'c'; fields found: reference, b", "candidate=FIELD"),
        ({"source": BOTH}, ("name=title",), r"a field 'title'; fields found: source", "name=FIELD"),
        ([1], (), "none, for no record is an object", "reference=FIELD"),
    ],
)
def test_a_missing_field_is_an_error_with_those_found(
    tmp_path: Path, record: object, fields: tuple[str, ...], said: str, mend: str
) -> None:
    with pytest.raises(MissingFieldError, match=said) as raised:
        read_works(records(tmp_path / "a.jsonl", record), fields=fields)
    assert mend in raised.value.remedy


@pytest.mark.parametrize("text", ["{", "3", '{"a": 1}', "[" * 100_000])
def test_a_json_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UnreadableInputError, match=re.escape("a.json")):
        read_works(tmp_path / "a.json")


def test_nothing_to_judge_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, {"empty/x.md": "", "a.jsonl": "\n", "a.json": "[]", "b.txt": ""})
    for name in ("empty", "a.jsonl", "a.json", "b.txt"):
        with pytest.raises(NoKernelsError, match=re.escape(name)):
            read_works(tmp_path / name)
    with pytest.raises(UnreadableInputError, match="no such file"):
        read_works(tmp_path / "none")
    with pytest.raises(UnreadableInputError, match="--reference"):
        read_works(write(tmp_path, {"k.py": NEW}) / "k.py", reference=tmp_path / "none")


# --- names -----------------------------------------------------------------------------------------------------------


def test_names_are_safe_and_differ_in_more_than_case(tmp_path: Path) -> None:
    titles = ["a", "A", "a", "a-2", "../../etc/passwd", "a/b", "a b", "", "<script>", "x" * 500, "é", "a\n", "."]
    path = records(tmp_path / "a.jsonl", *({"source": BOTH, "name": title} for title in titles))
    names = [work.name for work in read_works(path)]
    assert len({name.lower() for name in names}) == len(titles)
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", name) for name in names)
    assert max(map(len, names)) <= NAME_LENGTH_MAX
    assert names[:5] == ["a", "A-2", "a-3", "a-2-2", "etc-passwd"]


def test_many_of_one_name_take_no_time(tmp_path: Path) -> None:
    path = records(tmp_path / "a.jsonl", *({"source": BOTH, "name": "same"} for _ in range(5000)))
    assert len({work.name for work in read_works(path)}) == 5000
