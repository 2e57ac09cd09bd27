"""Pickles of version 0.1, made before modules and classes got names of their own, still load."""

import base64
import pickle
import zlib

import pytest

# A dict of objects over x = numpy.arange(12.0).reshape(6, 2) and y = [0, 1, 2, 0, 1, 2].
STORED = """
eNrFV1uLHEUUnpntnpmdTUwiRoLZxCgqsw/ZTUA0QcFoRNGWZklcfBBpu2d6trq3b3RXZ3eFgHnYZAcKX7ZEEATfvEQkz4I3
0CdB8BbQP6H4B/ScqprZnktno4IZmDk1VefUuXznnKp6U3s7PVgRn8u8zRpdm9qZSzk7FtibcU7XPLqIc4uZHSaBmynK2ayV
uhmNU7fLdzg7XsI93K7xrBoB83wJc2KnNONMXxZ0h7dNNEn3oiSnnGikQVrtcrvQFpCuv+JF3XgdxBeucJSvZ3GedtxyG+U6
iM49nab25kXJPpTXbZzl7N4oD5PNRasDehbDPKCeWtgHkejEUUbTvCP80wUn+Bx1JcsONypb/HzV4df4Bd42qkbdqF3lZJ7p
XbqZoDJW653h/W25PsOqT3LTNF/8Cz7ix6hQ7vTPv14Z+fzxlBqck6Sp6EFF71H0iKLzip5Q9EFFH1L0kXMc1DA9IzYYJY0c
mEjarLmeetR2AP3t3GGzmRu4HerFEWcPlIV2wALRnb045BexFeBqmER8YbBZnAJj08k9iC7K6KkdrWJ4IGS6UcXokCeMilGT
YwjhSUNDK/Or3MmdyxBGpweo9Sm/AqsXIB2ona66w/QhBySq5G5yWI2OkKPkOOJDTgzRgT8Ps5pXQIQsTMPj1ACJqqK1UYAm
5jG+YDMqWCIr5BQEkpwmj6pwkMcXyBlwcOjslnBwa9c9SKGCd7lZdHUu9CLPsWmHQDLvVS5OEHfWsFyekYPddBeFxG8zUCKN
2/9TYmLghMIl0i4LXQVYpudJfTdPmJZ5b0CCa2w2j5w4j7rQxfpMj9Oum45ITs0p6Ehdd2OyRYppiC11oyxOAZCXxeAFwT0M
cMvCPufJwjlRskWBZXZ5OBZ1AF5cAZusDX6n8WB1aIZ5RDk0rJq1yU2mrYEDWHQqAq08DawkdXveBqzWA9txg4y/BrZW0BOX
zYkpSwb0spjHFVgzarnYv4vJPOHoDPxZ6Z8/Uh2rt2KdAc4Nme7pZKDVgjrPvGgV2vVFxbx7dFhuEncIdG847pI4kyjAv4YV
xLZMGhjaFJuYyXRLun+sTBcuQ81pBrLB+cbmEjcNc2qLfcm35ZLrdoDVOrdc4N/hffxsi8QE5UlgR7dQLpObacvINnCRfARa
NQdOZlSvZS74BGjqCtcaa4mGYol6MdkcnGzWoMUA3B51w5GG3YBea1OKMSTvKBXvkvcQVExb8v4d7yEfGHXyoQl+f0yum+ST
3Vwkn47nH7kx/WhY+ZeNH3JlNY3zBOJ0tKTuBRKs/rxk2+F7GzAzplAbU6wXT57SOhqvH+22pGpjUkVnrwHcWIHicpR2Zeds
hG7oQDJO8asm9zxYnWIB09xLboQdupva6xkMmiEUXerZATdBCRSem1Ac+gdAnnymMu9zo0K+gO+XffKVSb4m37TZftFwTuaR
14vTkPv3AH/JzRBqRjUstu8lHKwoISi87W0sPSw88h35flBLYjfygyQ/GlXyEyTbz0aN/ALfm+RX8puvwRKGwm/AwPTvgt++
MHrbR9f9w2hPU6gLxNV60IpU5pDfyZ/TAYELS77nheWfA+0voIl7Yw3d3Qs9uLcDCoDDIXQPoZGX+ltBMo8sJwudsDjm/lmM
SGlXU2+G+/CQLDTHyT65PQWusxKusxIuHeCqSbhMctOcQKgvEJp4vRSPbLCkJV4vo2c+qHoMdVxnrSUaJkvJ2lIWcmw+2HTI
DVMsQytih3bXl0RYTvHJudPchbrKqFAIUrdf1rduBrqUapdJNRRtFXZxR9BuJml8yRPnzP1jYRqsZIviTQSR2i+eW8sDiWGw
RlIEahvFuf8qxr5uPee5QaEstMgOoWFqggcvGKiTk7eYZm94GRzVd/7Wyho9LxA3jAlLFtCIZmXkzrIFblii73DfAZ+lo76L
7utqfhWTyfEJkBIP/8Mp5ce4+6SpK9NMbVrqQQGvRYBqcK2GaZL3evhShFlqewFnM4ndxWuKvGNUIG8W/wZFIBHn
"""


@pytest.fixture
def old():
    return pickle.loads(zlib.decompress(base64.b64decode(STORED)))


def test_datasets_and_their_minibatches(old):
    assert old["dataset"].input().tolist() == [[2, 3], [4, 5], [6, 7], [8, 9]]
    assert old["dataset"][1].target() == 2
    assert [batch().tolist() for batch in old["minibatches"]][1] == [[8, 9], [10, 11]]


def test_indexes(old):
    found = [(record.array.tolist(), record.label) for record in old["index"]]
    assert found == [([2, 3], 1), ([6, 7], 0), ([10, 11], 2)]
    assert old["index"].item_at(0, 2).array.tolist() == [10, 11]


def test_samplers_go_on_in_the_same_order(old):
    assert [record.position for record in old["sampler"]] == [4, 1]
    assert [record.position for record in old["draws"]] == [2, 5, 3, 4]
    lines = [(record.url[-6:], record.position) for record in old["parts"]]
    assert lines == [("part-1", n) for n in (2, 3, 1, 0)] + [("part-0", n) for n in (1, 0)]


def test_providers(old):
    batches = [batch.input.input.tolist() for batch in old["provider"]]
    assert batches[0] == [[6, 7], [8, 9], [2, 3], [0, 1]]
    assert batches[1][:2] == [[10, 11], [4, 5]]


@pytest.mark.parametrize(
    "name", ["dataset", "minibatches", "index", "sampler", "parts", "provider"]
)
def test_they_are_stored_under_the_new_names(old, name):
    stored = pickle.dumps(old[name], 2)
    for gone in (b"indexes.parts", b"samplers.parts", b"samples.blocks", b"providers.arrays\n"):
        assert gone not in stored
