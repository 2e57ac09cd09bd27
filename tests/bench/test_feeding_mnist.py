"""The MNIST table: every variant delivers every image, and the table shows its share."""

import numpy as np
import pytest

from layoutkit.bench import feeding_mnist

COUNT = 200


def test_every_feeder_has_every_image_and_its_label(tmp_path):
    files = feeding_mnist.write_mnist(COUNT, tmp_path)
    pixels = np.fromfile(files[0], np.uint8, offset=16).reshape(COUNT, 1, 28, 28)
    wanted = pixels * np.float32(1 / 255)
    result = feeding_mnist.epochs(*files, pixels)
    assert [*result][:2] == ["in order", "shuffled"]
    for name, epoch in result.items():
        feeding_mnist.check(name, epoch, wanted)
    for name in ("in order", "shuffled"):
        for x, y in result[name]():
            np.testing.assert_array_equal(np.rint(x[:, 0, 0, 0] * 255), y)
    with pytest.raises(SystemExit, match="short: an epoch does not have every image once"):
        feeding_mnist.check("short", lambda: iter([(wanted[1:],)]), wanted)


def test_the_table(tmp_path, capsys, monkeypatch):
    plain = {"in order": lambda: iter(())}
    monkeypatch.setattr(feeding_mnist, "epochs", lambda *_: plain)
    monkeypatch.setattr(feeding_mnist, "check", lambda *_: None)
    feeding_mnist.main(tmp_path, COUNT, 2)
    _, first, head, *lines = capsys.readouterr().out.splitlines()
    assert first == "200 images of MNIST's size, batches of 128, 2 rounds"
    assert head.split() == ["ms", "an", "epoch", "share"]
    assert [line[:18].strip() for line in lines] == ["limit", "convert", "in order"]
    assert lines[0].split()[-1] == "1.00"
