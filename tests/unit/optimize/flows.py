"""Dataflows for the tests of single passes."""

import headrace as tf
from headrace._src.graph.verify_flow import verify_dataflow
from headrace._src.optimize.prune import prune
from headrace._src.optimize.raising import raise_structure
from headrace._src.optimize.reads import read_variables
from headrace._src.optimize.specialise import specialise


def flow(fetches, feeds=None, targets=()):
    """The specialised step of `fetches`, with feeds of these shapes."""
    feeds = feeds or {}
    fetches = fetches if isinstance(fetches, list) else [fetches]
    fetches = [tf.convert_to_tensor(t) if isinstance(t, tf.Variable) else t for t in fetches]
    step = read_variables(raise_structure(prune(fetches, list(targets), list(feeds))))
    made = specialise(step, list(feeds.values()))
    verify_dataflow(made)
    return made


def after(run, made):
    """What a pass makes of a flow, verified."""
    result = run(made)
    verify_dataflow(result)
    return result


def types(made):
    """The op types of the nodes that run, in order."""
    return [n.type for n in made.nodes if n.constant is None]


def node(made, name):
    """The node of that name."""
    (found,) = [n for n in made.nodes if n.name == name]
    return found
