"""Recurrent networks: cells (one step of time), and functions that run a cell over a sequence."""

from headrace.layers.recurrent import basic_cells as basic_cells
from headrace.layers.recurrent import block_cells as block_cells
from headrace.layers.recurrent import contrib_cells as contrib_cells
from headrace.layers.recurrent import dynamic as dynamic
from headrace.layers.recurrent import legacy_decoders as legacy_decoders
from headrace.layers.recurrent import lstm_cells as lstm_cells
from headrace.layers.recurrent import multi_cell as multi_cell
from headrace.layers.recurrent import projections as projections
from headrace.layers.recurrent import raw as raw
from headrace.layers.recurrent import stacked as stacked
from headrace.layers.recurrent import static as static
from headrace.layers.recurrent import wrappers as wrappers
