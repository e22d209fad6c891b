"""Recurrent networks: cells (one step of time), and functions that run a cell over a sequence."""

from headrace._src.layers.recurrent import (
    basic_cells,
    block_cells,
    contrib_cells,
    dynamic,
    legacy_decoders,
    lstm_cells,
    multi_cell,
    projections,
    stacked,
    static,
)
from headrace._src.layers.recurrent import cell_wrappers as wrappers
from headrace._src.layers.recurrent import raw_rnn as raw
