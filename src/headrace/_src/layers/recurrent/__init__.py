"""Recurrent networks: cells (one step of time), and functions that run a cell over a sequence."""

from headrace._src.layers.recurrent import (
    basic_cells,
    block_cells,
    cell_wrappers,
    contrib_cells,
    dynamic,
    legacy_decoders,
    lstm_cells,
    multi_cell,
    projections,
    raw_rnn,
    stacked,
    static,
)
