"""Representations in notebooks and at the prompt, and the names that completion offers."""

import re
from base64 import b64decode

import numpy as np
import pytest

import layoutkit
from layoutkit import Collator, Converter, plan
from layoutkit.data import open_index, sampled_batcher

PLAN = plan("bhwc->bchw", (2, 4, 5, 3), "uint8")
COLLATOR = Collator("hwc->bchw", h=2, w=2)
COLLATION = COLLATOR.plan([np.zeros((4, 5, 3), np.uint8)])


@pytest.mark.parametrize("shown", [PLAN, COLLATION])
def test_plans_show_what_print_shows(shown):
    assert repr(shown) == str(shown)
    assert len(repr(shown)) < 600


@pytest.mark.parametrize("shown", [PLAN, COLLATION, COLLATOR, Converter("bhwc->bchw")])
def test_conversions_are_drawn(shown):
    html = shown._repr_html_()
    assert repr(shown).splitlines()[0].replace(">", "&gt;") in html
    (data,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    assert "in memory</title>" in b64decode(data).decode()


def test_a_pattern_without_a_drawing_is_text():
    shown = Converter("...->...")._repr_html_()
    assert shown.startswith("<pre>Converter(")


def test_sources_and_batches_are_shown():
    source = {"x": np.arange(24, dtype=np.uint8).reshape(8, 3), "y": [0, 1] * 4}
    html = open_index(source)._repr_html_()
    assert "&lt;tensor index of 8 records" in html
    assert html.count("Record(") == 5
    with sampled_batcher(source, batch_size=4) as batches:
        batch = next(iter(batches))
    assert "batch of 4, 0 dropped" in batch._repr_html_()
    assert batch.input._repr_html_() in batch._repr_html_()


def test_spaces_are_shown():
    space = layoutkit.Conv2DSpace((4, 5), 3, "bhwc")
    assert space._repr_html_() == (
        "<pre>Conv2DSpace(shape=(4, 5), num_channels=3, axes=(&#x27;b&#x27;, 0, 1, &#x27;c&#x27;), "
        "dtype=&quot;float32&quot;)\nbatches of layout bhwc</pre>"
    )
    both = layoutkit.CompositeSpace((space, layoutkit.VectorSpace(4)))
    assert "CompositeSpace((Conv2DSpace(" in both._repr_html_()


@pytest.mark.parametrize("shown", [Converter("bhwc->bchw"), COLLATOR])
def test_completion_offers_what_users_call(shown):
    names = {name for name in dir(shown) if not name.startswith("_")}
    assert {"pattern", "plan", "device"} <= names
    assert not names & {"options", "graph_args", "windows", "recorded", "cuda_programs"}
    assert all(hasattr(shown, name) for name in names)


def test_completion_offers_the_modules():
    assert "errors" in dir(layoutkit)
