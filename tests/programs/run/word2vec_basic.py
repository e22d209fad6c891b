# A program as people wrote them from 2015 to 2019; tests/programs/test_run_programs.py runs it.
from __future__ import absolute_import
from __future__ import print_function
import collections, math, os, random, zipfile
import numpy as np
from six.moves import urllib
from six.moves import xrange
import tensorflow as tf
words = ("the quick brown fox jumps over the lazy dog and the cat sat on the mat while " * 200).split()
vocabulary_size = 15
def build_dataset(words):
  count = [['UNK', -1]]
  count.extend(collections.Counter(words).most_common(vocabulary_size - 1))
  dictionary = dict()
  for word, _ in count:
    dictionary[word] = len(dictionary)
  data = [dictionary.get(w, 0) for w in words]
  return data, count, dictionary, dict(zip(dictionary.values(), dictionary.keys()))
data, count, dictionary, reverse_dictionary = build_dataset(words)
data_index = 0
def generate_batch(batch_size, num_skips, skip_window):
  global data_index
  batch = np.ndarray(shape=(batch_size), dtype=np.int32)
  labels = np.ndarray(shape=(batch_size, 1), dtype=np.int32)
  span = 2 * skip_window + 1
  buffer = collections.deque(maxlen=span)
  for _ in range(span):
    buffer.append(data[data_index]); data_index = (data_index + 1) % len(data)
  for i in range(batch_size // num_skips):
    target = skip_window
    targets_to_avoid = [ skip_window ]
    for j in range(num_skips):
      while target in targets_to_avoid:
        target = random.randint(0, span - 1)
      targets_to_avoid.append(target)
      batch[i * num_skips + j] = buffer[skip_window]
      labels[i * num_skips + j, 0] = buffer[target]
    buffer.append(data[data_index]); data_index = (data_index + 1) % len(data)
  return batch, labels
batch_size, embedding_size, num_sampled = 32, 16, 8
valid_examples = np.array(random.sample(range(10), 4))
graph = tf.Graph()
with graph.as_default():
  train_inputs = tf.placeholder(tf.int32, shape=[batch_size])
  train_labels = tf.placeholder(tf.int32, shape=[batch_size, 1])
  valid_dataset = tf.constant(valid_examples, dtype=tf.int32)
  with tf.device('/cpu:0'):
    embeddings = tf.Variable(tf.random_uniform([vocabulary_size, embedding_size], -1.0, 1.0))
    embed = tf.nn.embedding_lookup(embeddings, train_inputs)
    nce_weights = tf.Variable(tf.truncated_normal([vocabulary_size, embedding_size], stddev=1.0 / math.sqrt(embedding_size)))
    nce_biases = tf.Variable(tf.zeros([vocabulary_size]))
  loss = tf.reduce_mean(tf.nn.nce_loss(nce_weights, nce_biases, embed, train_labels, num_sampled, vocabulary_size))
  optimizer = tf.train.GradientDescentOptimizer(1.0).minimize(loss)
  norm = tf.sqrt(tf.reduce_sum(tf.square(embeddings), 1, keep_dims=True))
  normalized_embeddings = embeddings / norm
  valid_embeddings = tf.nn.embedding_lookup(normalized_embeddings, valid_dataset)
  similarity = tf.matmul(valid_embeddings, normalized_embeddings, transpose_b=True)
  init = tf.initialize_all_variables()
with tf.Session(graph=graph) as session:
  init.run()
  average_loss = 0
  for step in xrange(101):
    batch_inputs, batch_labels = generate_batch(batch_size, 2, 1)
    _, loss_val = session.run([optimizer, loss], feed_dict={train_inputs : batch_inputs, train_labels : batch_labels})
    average_loss += loss_val
    if step % 100 == 0:
      print("Average loss at step ", step, ": ", average_loss); average_loss = 0
  sim = similarity.eval()
  for i in xrange(4):
    nearest = (-sim[i, :]).argsort()[1:4]
    print(reverse_dictionary[valid_examples[i]], [reverse_dictionary[k] for k in nearest])
