"""Run programs for TensorFlow 1 as they are: `headrace run` and `import headrace.as_tensorflow`.

`activation`   turns everything on, in this process and in those that it starts
`mirror`       the modules `tensorflow.…`, which have the names of `headrace.…`
`old_names`    spellings of TensorFlow 0.8 to 0.12 that 1.0 removed
`mnist`        `tensorflow.examples.tutorials.mnist`: data without a download
`sources`      the program's own files: translated from Python 2 and mended, in memory
`python2`      the translation
`mends`        modules and names outside TensorFlow that have gone
`running`      a script or module as the main program
`checking`     `headrace check`: the symbols that a program uses and Headrace lacks
`notices`      one line for each kind of mending
"""
