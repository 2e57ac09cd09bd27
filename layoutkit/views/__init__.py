"""Views: what a batch is, between models.

DataView, ImageView, SequenceView, ClassView    one array; put once, got in any layout and dtype
ListView                                        several of them, as nested as you like

base.py        what all views can do
holder.py      how a view of one array holds one batch after the other
dataview.py    one array; its kinds are in image.py, sequence.py and classes.py
batch.py       from one put to the next: the base, its results and gradients
gettings.py    how a base becomes what is asked; kept from batch to batch
forms.py       what may stand in the place of a layout: it is asked, and not known here
column.py      the first column of labels
display.py     views in words and in HTML
"""

from .classview import ClassView
from .dataview import DataView, ImageView, SequenceView
from .listview import ListView

__all__ = ["ClassView", "DataView", "ImageView", "ListView", "SequenceView"]
