"""Files from unknown sources: bombs, escapes and giants are refused before they do harm."""

import contextlib
import os
import pickle
import resource
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml

from pipelines.cli.run import parse_overrides
from pipelines.dvc.stage import bring_up_to_date
from pipelines.many.watch import watch
from pipelines.scans.register import Request, register_scan
from pipelines.scans.status import read_status
from pipelines.versions.reproduce import pull
from stages.ingest.log_file import read_log
from stages.runtime.artifacts import read_metrics
from stages.runtime.errors import InputError
from stages.runtime.files import PlainDumper, parse_yaml, read_mapping
from stages.runtime.params import load_params
from tests.pipelines.test_dvc_stage import entry_of
from tests.pipelines.tiny_project import ROOT, runs, write_scan

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
"""9 to the 9th values in nine lines."""


def ingest_params(**changes):
    return load_params(ROOT / "params.yaml").ingest.model_copy(update=changes)


def test_yaml_bombs(tmp_path):
    path = tmp_path / "scan.yaml"
    path.write_text(LAUGHS)
    with pytest.raises(InputError, match="not allowed"):
        read_mapping(path)
    path.write_text("a: " + "[" * 100_000)
    with pytest.raises(InputError, match="not valid YAML"):
        read_mapping(path)
    path.write_text("a: 1\n" + "#" * 10_000_001)
    with pytest.raises(InputError, match="at most 10 MB"):
        read_mapping(path)
    path.write_text("a: !!python/object/apply:os.system ['touch /tmp/owned']\n")
    with pytest.raises(InputError, match="not valid YAML"):
        read_mapping(path)
    with pytest.raises(InputError, match="is not valid YAML"):
        parse_overrides(["clean.unit={a: &a [1], b: *a}"])


@pytest.mark.parametrize("value", ["2001-13-01", "9" * 5000, '!!timestamp "x"', "!!float x", "!!int ''"])
def test_values_on_which_the_parser_itself_fails(tmp_path, value):
    path = tmp_path / "scan.yaml"
    path.write_text(f"a: {value}\n")
    with pytest.raises(InputError, match="not valid YAML"):
        read_mapping(path)
    with pytest.raises(InputError, match="is not valid YAML") as caught:
        parse_overrides([f"clean.scale={value}"])
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("clean:\n  unit: m\n  scale: 1\n  unit: mm\n", "unit", 4),
        ("clean: {unit: m}\ningest: {}\nclean: {unit: mm}\n", "clean", 3),
        ("a: [{b: 1, 'b': 2}]\n", "b", 1),
    ],
)
def test_a_key_that_is_given_twice_is_refused(tmp_path, text, key, line):
    """PyYAML would take the last one and drop the other in silence; DVC's reader stops with words of its own."""
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=f"line {line} has the duplicate key '{key}'"):
        read_mapping(path)
    with pytest.raises(InputError, match="is not valid YAML"):
        parse_overrides(["optimize.constraints={a: 1, a: 2}"])
    assert parse_yaml("a: {b: 1}\nc: {b: 1}\n") == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.usefixtures("comes_to_an_end")
def test_a_pipe_a_device_or_a_folder_in_the_place_of_a_file_is_not_read(tmp_path):
    pipe, device, folder = tmp_path / "pipe.yaml", tmp_path / "device.yaml", tmp_path / "folder.yaml"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    folder.mkdir()
    handles = len(list(Path("/proc/self/fd").iterdir()))
    for path in (pipe, device, folder):
        with pytest.raises(InputError, match="not a regular file"):
            read_mapping(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == handles, "a watcher looks again and again"


@pytest.mark.parametrize(
    "ask", [lambda p: read_status(p, ["apple"]), lambda p: pull(p, []), lambda p: pull(p, ["apple"])]
)
@pytest.mark.usefixtures("comes_to_an_end")
def test_no_question_about_a_scan_waits_for_a_pipe(project, tmp_path, ask):
    """DVC reads scan.yaml too, and would wait for ever."""
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    scan_file = project.scan_dir("apple") / "scan.yaml"
    scan_file.unlink()
    os.mkfifo(scan_file)
    with pytest.raises(InputError, match="not a regular file"):
        ask(project)


@pytest.mark.parametrize(
    ("line", "instead", "words"),
    [
        ("force_log: apple.ply\n", "", "has no force_log"),
        ("id: apple\n", "id: pear\n", "Both must be the same"),
    ],
)
def test_status_refuses_a_scan_file_that_lacks_or_confuses_something(project, tmp_path, line, instead, words):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    scan_file = project.scan_dir("apple") / "scan.yaml"
    text = scan_file.read_text()
    assert line in text
    scan_file.write_text(text.replace(line, instead))
    with pytest.raises(InputError, match=words):
        read_status(project, ["apple"])


@pytest.mark.parametrize("target", ["scan.yaml", "nowhere.yaml"], ids=["loop", "dangling"])
def test_a_scan_whose_file_is_a_link_to_nowhere_is_named(project, tmp_path, target):
    """Not left out, as if it were not registered; nor may another file take its id meanwhile."""
    scan = write_scan(tmp_path, "apple.ply", "one")
    register_scan(project, Request(scan))
    scan_file = project.scan_dir("apple") / "scan.yaml"
    scan_file.unlink()
    scan_file.symlink_to(target)
    another = Request(write_scan(tmp_path, "apple.ply", "two"))
    for ask in (
        lambda: read_status(project),
        lambda: pull(project, []),
        lambda: register_scan(project, another),
    ):
        with pytest.raises(InputError, match=r"apple/scan\.yaml can't be read .* Restore it\."):
            ask()
    assert (project.scan_dir("apple") / "apple.ply").read_text() == "one"


@pytest.mark.parametrize(
    "line",
    [
        "precut: [1]",
        "precut: text",
        "clean: [1]",
        "clean: 3",
        "fry: {oil: 1}",
        "fry: 3",
        '"a\\0": {}',
        "1: {}",
    ],
)
def test_what_is_no_section_in_scan_yaml_is_refused_everywhere(project, tmp_path, line):
    scan = write_scan(tmp_path, "apple.ply")
    register_scan(project, Request(scan))
    path = project.scan_dir("apple") / "scan.yaml"
    kept = [text for text in path.read_text().splitlines() if not text.startswith(line.split(":")[0])]
    path.write_text("\n".join([*kept, line, ""]))
    for attempt in (
        lambda: load_params(project.root / "params.yaml", path),
        lambda: register_scan(project, Request(scan)),
        lambda: bring_up_to_date(project, "apple", entry_of(project, "clean")),
    ):
        with pytest.raises(InputError, match="section"):
            attempt()


def test_deeply_nested_metrics_are_a_sentence(tmp_path):
    path = tmp_path / "metrics.json"
    for text in ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", '{"a": ' * 900 + "1" + "}" * 900):
        path.write_text(text)
        with contextlib.suppress(InputError):
            read_metrics(path)
    path.write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(InputError, match="can't be read as JSON"):
        read_metrics(path)


def test_what_is_written_can_be_read_back():
    shared = [1.0, 2.0]
    text = yaml.dump({"a": shared, "b": shared}, Dumper=PlainDumper)
    assert parse_yaml(text) == {"a": shared, "b": shared}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("id", "x; touch owned"),
        ("scan", "../../../etc/passwd"),
        ("scan", "/etc/passwd"),
        ("force_log", "../pear/log.json"),
        ("cut_surface", "$(touch owned)"),
        ("air_runs", ".."),
    ],
)
def test_names_in_scan_yaml_reach_neither_a_shell_nor_another_folder(project, tmp_path, key, value):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    path = project.scan_dir("apple") / "scan.yaml"
    content = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**content, key: value}))
    with pytest.raises(InputError, match=key):
        bring_up_to_date(project, "apple", entry_of(project, "clean"))
    assert runs(project) == []
    assert not list(project.root.rglob("owned"))


@pytest.mark.parametrize("name", ["../apple.ply", "/etc/passwd", "a b.ply", ".hidden"])
def test_a_cutting_surface_by_name_stays_in_its_folder(project, tmp_path, name):
    request = Request(write_scan(tmp_path, "apple.ply"), overrides={"precut": {"surface_file": name}})
    with pytest.raises(InputError, match=r"precut\.surface_file"):
        register_scan(project, request)
    assert list(project.scans_dir.iterdir()) == []


def test_a_giant_is_refused_before_it_is_copied(project, tmp_path):
    giant = tmp_path / "giant.ply"
    with giant.open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(InputError, match=r"At most 268 MB are read \(clean.max_bytes\)"):
        register_scan(project, Request(giant))
    scan = write_scan(tmp_path, "apple.ply", "x" * 200)
    with pytest.raises(InputError, match=r"clean\.max_bytes"):
        register_scan(project, Request(scan, overrides={"clean": {"max_bytes": 100}}))
    assert list(project.scans_dir.iterdir()) == []
    assert register_scan(project, Request(scan)) == "apple"


def test_a_zip_bomb_is_refused_by_what_it_would_unpack_to(tmp_path):
    bomb = tmp_path / "log.npz"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("time.npy", "w") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f8", "fortran_order": False, "shape": (40_000_000,)}
        )
        for _ in range(320):
            file.write(bytes(1_000_000))
    assert bomb.stat().st_size < 1_000_000
    with pytest.raises(InputError, match="320 MB when unpacked"):
        read_log(bomb, ingest_params())


def test_a_recording_that_unpacks_to_far_more_than_a_log_is_refused(tmp_path):
    from rosbags.rosbag1 import Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC)
    kind, bomb = "geometry_msgs/msg/WrenchStamped", tmp_path / "bomb.bag"
    types = store.types
    zero = types["geometry_msgs/msg/Vector3"](0.0, 0.0, 0.0)
    header = types["std_msgs/msg/Header"](0, types["builtin_interfaces/msg/Time"](1, 0), "a" * 80_000_000)
    message = types[kind](header, types["geometry_msgs/msg/Wrench"](zero, zero))
    writer = Writer(bomb)
    writer.set_compression(Writer.CompressionFormat.BZ2)
    with writer:
        connection = writer.add_connection("/force", kind, typestore=store)
        writer.add_connection("/pose", "geometry_msgs/msg/PoseStamped", typestore=store)
        writer.write(connection, 10**9, store.serialize_ros1(message, kind))
    del message, header
    assert bomb.stat().st_size < 100_000
    limit = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(InputError, match="unpacks to more than 20 MB"):
        read_log(bomb, ingest_params(max_bytes=2_000_000))
    assert resource.getrlimit(resource.RLIMIT_AS) == limit, "the bound is for the reading alone"


def test_a_recording_of_ros_2_that_unpacks_to_far_more_than_a_log_is_refused(tmp_path):
    from mcap.writer import CompressionType, Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    kind, bomb = "geometry_msgs/msg/WrenchStamped", tmp_path / "bomb.mcap"
    types = store.types
    zero = types["geometry_msgs/msg/Vector3"](0.0, 0.0, 0.0)
    header = types["std_msgs/msg/Header"](types["builtin_interfaces/msg/Time"](1, 0), "a" * 80_000_000)
    message = types[kind](header, types["geometry_msgs/msg/Wrench"](zero, zero))
    pose = "geometry_msgs/msg/PoseStamped"
    with bomb.open("wb") as file:
        writer = Writer(file, compression=CompressionType.ZSTD)
        writer.start(profile="ros2")
        channels = [
            writer.register_channel(
                topic,
                "cdr",
                writer.register_schema(
                    name, "ros2msg", store.generate_msgdef(name, ros_version=2)[0].encode()
                ),
            )
            for topic, name in (("/pose", pose), ("/force", kind))
        ]
        writer.add_message(channels[1], 10**9, bytes(store.serialize_cdr(message, kind)), 10**9)
        writer.finish()
    del message, header
    assert bomb.stat().st_size < 100_000
    with pytest.raises(InputError, match="unpacks to more than 20 MB"):
        read_log(bomb, ingest_params(max_bytes=2_000_000))


def test_a_pickle_that_asks_for_gigabytes_or_contains_itself_is_refused(tmp_path):
    path = tmp_path / "log.pkl"
    length = (3_000_000_000).to_bytes(8, "little")
    path.write_bytes(b"\x80\x05\x96" + length + b"short.")
    with pytest.raises(InputError, match="expected 3000000000 bytes"):
        read_log(path, ingest_params(allow_pickle=True))
    own: list = []
    own.append(own)
    path.write_bytes(pickle.dumps({"time": own, "force": own, "position": own}))
    with pytest.raises(InputError, match="more values than the file has bytes"):
        read_log(path, ingest_params(allow_pickle=True))


class Evil:
    def __reduce__(self):
        return (print, ("owned",))


def test_pickles_are_refused_and_never_run_even_if_allowed(tmp_path, capsys):
    path = tmp_path / "log.pkl"
    path.write_bytes(pickle.dumps({"time": Evil()}))
    with pytest.raises(InputError, match="Pickles are not read by default"):
        read_log(path, ingest_params())
    with pytest.raises(InputError, match="Only NumPy arrays"):
        read_log(path, ingest_params(allow_pickle=True))
    assert "owned" not in capsys.readouterr().out
    inner: list = ["x"] * 9
    for _ in range(9):
        inner = [inner] * 9
    path.write_bytes(pickle.dumps({"time": inner, "force": inner, "position": inner}))
    with pytest.raises(InputError, match="more values than the file has bytes"):
        read_log(path, ingest_params(allow_pickle=True))


def test_a_pickle_inside_an_archive_is_not_opened(tmp_path):
    path = tmp_path / "log.npz"
    np.savez(path, time=np.array([Evil()], dtype=object))
    with pytest.raises(InputError, match="NPZ without pickled objects"):
        read_log(path, ingest_params())


def test_no_link_ends_the_watcher(project, tmp_path, monkeypatch):
    """A subscription to the file system would follow it, and end where it may not read."""
    inbox, seen = tmp_path / "inbox", []
    inbox.mkdir()
    (inbox / "away").symlink_to("/proc/1")
    (inbox / "self").symlink_to(".")
    monkeypatch.setattr("pipelines.many.watch.scan_pool", lambda *options: contextlib.nullcontext())
    monkeypatch.setattr("pipelines.many.watch.find_deliveries", lambda folder: seen.append(folder) or [])
    options = {"scans_at_once": 1, "settle_s": 0.1, "say": print, "stop": threading.Event(), "once": True}
    assert watch(project, inbox, **options) == 0
    assert len(seen) > 5, "it looked again and again"
