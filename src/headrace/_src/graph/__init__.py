"""Graphs and the forms that passes make from them.

`graph` and `operation` are the client's graph, `dataflow` the form of a step that passes rewrite,
`program` the scheduled form that executors run. `definition` says what an op type is; `inference`
computes static shapes and values; `graph_def`, `import_graph` and `meta_graph` read and write
protocol buffers; `verify` checks each form. Nothing here knows a particular op.
"""
