import pathlib
import pickle
import random
import subprocess

import numpy
import pytest

import hpvm
from hpvm import programs

ECHO = "hpvm.send(hpvm.parent(), hpvm.recv(hpvm.parent()))"


@pytest.mark.parametrize(
    "value",
    [None, 7, "text", {"a": [1, (2, 3)]}, b"", b"x" * 100, b"y" * 100_000, bytearray(b"z" * 70_000), [b"a" * 5000] * 3],
    ids=lambda value: type(value).__name__,
)
def test_objects_come_back_as_they_were(value):
    [tid] = hpvm.python(ECHO)
    hpvm.send(tid, value)
    back = hpvm.recv(tid, timeout=20)
    assert back == value and type(back) is type(value)


def test_arrays_come_back_writable_and_of_the_same_type():
    [tid] = hpvm.python("for _ in range(5): " + ECHO)
    for array in (
        numpy.arange(10),
        numpy.linspace(0, 1, 1 << 20),
        numpy.arange(60_000).reshape(200, 300)[::2],
        numpy.asfortranarray(numpy.ones((300, 500), "f4")),
        numpy.zeros(5000, "c16"),
    ):
        hpvm.send(tid, array)
        back = hpvm.recv(tid, timeout=20)
        assert back.dtype == array.dtype and (back == array).all() and back.flags.writeable


@pytest.mark.parametrize("length", [1025, 1026, 1027, 5003, 40_001])
def test_several_receivers_and_mailboxes_get_arrays_of_any_length(length):
    arrays = [numpy.arange(length + more, dtype="uint8") for more in (0, 1, 2)]
    tids = hpvm.python(ECHO, count=2)
    hpvm.send(tids, arrays)
    hpvm.put("arrays", arrays)
    for back in (*(hpvm.recv(tid, timeout=20) for tid in tids), hpvm.get("arrays")):
        assert all((one == other).all() for one, other in zip(back, arrays))
    hpvm.remove("arrays")


def test_a_read_only_array_stays_read_only():
    array = numpy.arange(10_000)
    array.flags.writeable = False
    hpvm.send(hpvm.mytid(), array, 11)
    back = hpvm.recv(tag=11, timeout=5)
    assert not back.flags.writeable and (back == array).all()


def test_large_arrays_travel_beside_the_pickle():
    from hpvm.messages import dumps

    array = numpy.zeros(1 << 20)
    parts = dumps(array)
    assert len(parts[0]) < 1000 and numpy.shares_memory(numpy.frombuffer(parts[1]), array)


def compiled(name, directory):
    lib, include = programs.HERE / "lib", programs.HERE / "include"
    source, program = pathlib.Path(__file__).with_name(f"{name}.c"), directory / name
    subprocess.run(
        ["cc", source, f"-I{include}", f"-L{lib}", f"-Wl,-rpath,{lib}", "-l:libpvm3.so.3", "-o", program], check=True
    )
    return program


def test_a_member_in_c_reduces_and_gathers_with_one_in_python(tmp_path):
    group = hpvm.Group("mixed")
    assert group.instance == 0
    hpvm.spawn(compiled("member", tmp_path))
    group.barrier(2)
    assert group.reduce(numpy.array([0.5, 0, -3]), numpy.add, tag=5).tolist() == [1.5, 2, 0]
    assert group.gather(numpy.array([1, 2], "f"), tag=6).tolist() == [[1, 2], [4, 5]]
    group.barrier(2)
    group.leave()


def test_a_c_program_unpacks_typed_items_and_answers(tmp_path):
    [tid] = hpvm.spawn(compiled("square", tmp_path))
    values = numpy.array([1.5, -2.0, 3.0])
    hpvm.Packet().ints(3).text("three").add(values).send(tid, 3)
    message = hpvm.recv_message(tid, 4, timeout=20)
    assert (message.into(numpy.empty(3)) == values**2).all() and message.text() == "three"


@pytest.mark.parametrize("length", [16300, 16384, 32000, 32768, 40000])
def test_objects_around_the_limits_of_short_messages_arrive(length):
    for value in ("x" * length, ["y" * (length - 2000), numpy.arange(1000, dtype="u1")], [b"z" * 500] * (length // 500)):
        hpvm.send(hpvm.mytid(), value, 14)
        back = hpvm.recv(tag=14, timeout=5)
        assert len(back) == len(value) and back[0] == value[0]
    hpvm.send(hpvm.mytid(), "short", 15)
    assert hpvm.recv_message(tag=15, timeout=5).object() == "short"


def test_arrays_go_from_memory_to_memory():
    [tid] = hpvm.python(
        "import numpy; a = numpy.empty(1 << 22); n = hpvm.precv(a, hpvm.parent(), 5)[2]; hpvm.psend(hpvm.parent(), a[:n], 6)"
    )
    array = numpy.random.default_rng(1).random(1 << 22)
    hpvm.psend(tid, array, 5)
    into = numpy.zeros_like(array)
    assert hpvm.precv(into, tid, 6, timeout=30) == (tid, 6, 1 << 22) and (into == array).all()
    me = hpvm.mytid()
    for kind in "i1 u2 i4 u4 i8 u8 f4 f8 c8 c16".split():
        small, into = numpy.arange(7).astype(kind), numpy.zeros(9, kind)
        hpvm.psend(me, small, 7)
        assert hpvm.precv(into, me, 7, timeout=5) == (me, 7, 7) and (into[:7] == small).all()


def test_precv_wants_writable_memory_in_a_row_and_a_message_in_time():
    with pytest.raises(TimeoutError, match="within 0.01 s"):
        hpvm.precv(numpy.zeros(3), tag=16, timeout=0.01)
    with pytest.raises((ValueError, BufferError)):
        hpvm.precv(numpy.zeros((4, 4))[:, ::2], tag=16, timeout=0.01)
    with pytest.raises((TypeError, BufferError)):
        hpvm.precv(b"read-only", tag=16, timeout=0.01)
    with pytest.raises(TypeError, match="no type"):
        hpvm.psend(hpvm.mytid(), numpy.zeros(3, "f2"))


def test_a_foreign_message_is_no_object():
    hpvm.Packet().ints(1, 2, 3, 4, 5, 6).send(hpvm.mytid(), 12)
    with pytest.raises(hpvm.MessageError, match="PvmBadMsg"):
        hpvm.recv(tag=12, timeout=5)


def test_unpacking_too_much_is_an_error():
    hpvm.Packet().ints(1).send(hpvm.mytid(), 13)
    message = hpvm.recv_message(tag=13, timeout=5)
    with pytest.raises(hpvm.MessageError, match="PvmNoData"):
        message.ints(2)


def test_types_that_pvm_lacks_are_refused():
    with pytest.raises(TypeError, match="no type"):
        hpvm.Packet().add(numpy.zeros(3, "f2"))


def test_errors_say_what_failed_and_what_helps():
    with pytest.raises(hpvm.PvmError) as caught:
        hpvm.spawn("/no/such/program")
    assert "PvmNoFile" in str(caught.value) and "/no/such/program" in str(caught.value) and caught.value.cure
    with pytest.raises(hpvm.HostError) as caught:
        hpvm.delete_hosts("nowhere.invalid")
    assert caught.value.host == "nowhere.invalid" and caught.value.code == -6
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and type(again) is hpvm.HostError


def test_mailboxes_hold_objects_until_they_are_removed():
    array = numpy.arange(100_000)
    hpvm.put("table", array)
    assert (hpvm.get("table") == array).all()
    hpvm.remove("table")
    with pytest.raises(hpvm.PvmError, match="PvmNotFound"):
        hpvm.get("table")


MEMBER = """
import numpy
group = hpvm.Group("team")
group.barrier(3)
mine = numpy.full(4, group.instance + 1)
results = [group.reduce(mine, operation) for operation in (numpy.add, numpy.multiply, numpy.gcd)]
rows = group.gather(mine)
part = group.scatter(None if group.instance else numpy.arange(6.0).reshape(3, 2), numpy.empty(2))
hpvm.send(hpvm.parent(), (group.instance, results, rows, part))
group.barrier(3)
"""


def test_groups_reduce_gather_and_scatter():
    tids = hpvm.python(MEMBER, count=3)
    got = {instance: rest for instance, *rest in (hpvm.recv(tid, timeout=30) for tid in tids)}
    assert sorted(got) == [0, 1, 2]
    results, rows, _ = got[0]
    assert [list(result) for result in results] == [[6] * 4, [6] * 4, [1] * 4]
    assert rows.tolist() == [[1] * 4, [2] * 4, [3] * 4]
    assert [got[instance][2].tolist() for instance in range(3)] == [[0, 1], [2, 3], [4, 5]]
    assert got[1][0] == [None] * 3


def test_watches_tell_of_ends_by_iterator_and_by_callback():
    import queue

    ended = queue.Queue()
    tids = hpvm.python("hpvm.recv(hpvm.parent())", count=2)
    with hpvm.watch_exit(tids) as watch, hpvm.watch_exit(tids, ended.put):
        assert watch.wait(0.05) is None
        hpvm.kill(tids[0])
        assert next(watch) == tids[0] and ended.get(timeout=10) == tids[0]
        hpvm.send(tids[1], None)
        assert list(watch) == [tids[1]] and ended.get(timeout=10) == tids[1]
        assert not hpvm.is_alive(tids[0])


PLAIN = [
    None, True, False, 0, 255, 256, 65535, 65536, -1, -(2**31), 2**31, 2**63 - 1, -(2**63), 0.0, -0.5, float("inf"),
    "", "a", "\u00e9" * 200, "x" * 300, b"", b"y" * 300, [], (), {}, [[]], [(1,), {"a": [None, ()]}],
    {1: 2, (1, 2): "three"}, {"step": 3, "name": "site", "residual": 0.125, "done": False}, list(range(1000)),
]  # fmt: skip


def body_of(value):
    """Returns the bytes of the message in which a value travels."""
    hpvm.send(hpvm.mytid(), value, 16)
    message = hpvm.recv_message(tag=16, timeout=5)
    return message.bytes(message.nbytes)


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: repr(value)[:20])
def test_a_plain_value_travels_as_a_pickle_and_comes_back_as_it_was(value):
    body = body_of(value)
    assert body[:8] == b"hpvmone1"
    there = pickle.loads(body[8:])
    hpvm.send(hpvm.mytid(), value, 17)
    back = hpvm.recv(tag=17, timeout=5)
    assert there == value and back == value and type(there) is type(value) and type(back) is type(value)


@pytest.mark.parametrize("value", [2**63, -(2**70), "\ud800", {1}, 1j, [0, [1, {2: 2**64}]]], ids=repr)
def test_a_value_that_is_not_plain_comes_back_as_it_was(value):
    hpvm.send(hpvm.mytid(), value, 18)
    assert hpvm.recv(tag=18, timeout=5) == value


def test_what_is_one_object_is_one_object_again():
    inner = [1]
    hpvm.send(hpvm.mytid(), [inner, {"again": inner}], 18)
    back = hpvm.recv(tag=18, timeout=5)
    back[0].append(2)
    assert back == [[1, 2], {"again": [1, 2]}]
    itself = []
    itself.append(itself)
    hpvm.send(hpvm.mytid(), itself, 18)
    back = hpvm.recv(tag=18, timeout=5)
    assert back[0] is back
    deep = []
    for _ in range(100):
        deep = [deep]
    hpvm.send(hpvm.mytid(), deep, 18)
    assert hpvm.recv(tag=18, timeout=5) == deep


def test_subclasses_keep_their_class():
    import collections
    import enum

    Level = enum.IntEnum("Level", "LOW HIGH")
    globals()["Level"] = Level
    Level.__module__, Level.__qualname__ = __name__, "Level"
    for value in (collections.OrderedDict(a=1), [Level.HIGH], collections.Counter("aab")):
        hpvm.send(hpvm.mytid(), value, 18)
        back = hpvm.recv(tag=18, timeout=5)
        assert back == value and type(back) is type(value)
    hpvm.send(hpvm.mytid(), Level.HIGH, 18)
    assert hpvm.recv(tag=18, timeout=5) is Level.HIGH


def test_a_damaged_pickle_raises_an_exception_or_is_another_value():
    random.seed(17)
    for value in ([1, ("two", 3.0), {"four": b"5"}], {"a": [None, True, 70000, -1]}):
        whole = body_of(value)
        for end in range(8, len(whole) - 1):
            hpvm.psend(hpvm.mytid(), whole[:end], 19)
            with pytest.raises(Exception):
                hpvm.recv(tag=19, timeout=5)
        for _ in range(500):
            damaged = bytearray(whole)
            damaged[random.randrange(10, len(whole))] ^= 1 << random.randrange(3)
            hpvm.psend(hpvm.mytid(), damaged, 19)
            try:
                expected = pickle.loads(bytes(damaged[8:]))
            except Exception as error:
                with pytest.raises(type(error)):
                    hpvm.recv(tag=19, timeout=5)
            else:
                assert repr(hpvm.recv(tag=19, timeout=5)) == repr(expected)
