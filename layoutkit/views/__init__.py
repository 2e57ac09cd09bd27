"""Views: hold a batch that models need in several layouts.

DataView, ImageView, SequenceView, ClassView    one array; put once, got in any layout and dtype
ListView                                        several arrays, nested to any depth

base.py        the View base class, and the protocol of targets that are not layouts
dataview.py    views of one array: DataView, ImageView, SequenceView
classview.py   ClassView, and the conversion of labels to their first column
listview.py    ListView
batch.py       the state of one batch: the base, its conversions and gradients
plans.py       the conversions of a base, cached from batch to batch
display.py     text and HTML representations of views
"""

from .classview import ClassView
from .dataview import DataView, ImageView, SequenceView
from .listview import ListView

__all__ = ["ClassView", "DataView", "ImageView", "ListView", "SequenceView"]
