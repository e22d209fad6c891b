# A program as people wrote them from 2015 to 2019; tests/programs/test_run_programs.py runs it.
import tensorflow as tf, numpy as np, os
def _int64_feature(value): return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
def _bytes_feature(value): return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
writer = tf.python_io.TFRecordWriter('x.tfrecords')
for i in range(40):
    img = np.full((4, 4), i, np.uint8)
    ex = tf.train.Example(features=tf.train.Features(feature={'label': _int64_feature(i), 'image_raw': _bytes_feature(img.tostring())}))
    writer.write(ex.SerializeToString())
writer.close()
def read_and_decode(fq):
    reader = tf.TFRecordReader()
    _, s = reader.read(fq)
    f = tf.parse_single_example(s, features={'image_raw': tf.FixedLenFeature([], tf.string), 'label': tf.FixedLenFeature([], tf.int64)})
    image = tf.decode_raw(f['image_raw'], tf.uint8); image.set_shape([16])
    return tf.cast(image, tf.float32) * (1. / 255) - 0.5, tf.cast(f['label'], tf.int32)
with tf.Graph().as_default():
    fq = tf.train.string_input_producer(['x.tfrecords'], num_epochs=1)
    image, label = read_and_decode(fq)
    images, labels = tf.train.batch([image, label], batch_size=8)
    init_op = tf.group(tf.initialize_all_variables(), tf.initialize_local_variables())
    sess = tf.Session(); sess.run(init_op)
    coord = tf.train.Coordinator(); threads = tf.train.start_queue_runners(sess=sess, coord=coord)
    try:
        step = 0
        while not coord.should_stop():
            i, l = sess.run([images, labels]); step += 1; print(l)
    except tf.errors.OutOfRangeError:
        print('Done training, %d steps.' % step)
    finally:
        coord.request_stop()
    coord.join(threads); sess.close()
for rec in tf.python_io.tf_record_iterator('x.tfrecords'):
    e = tf.train.Example(); e.ParseFromString(rec)
    print(np.fromstring(e.features.feature['image_raw'].bytes_list.value[0], dtype=np.uint8)[:2]); break
