"""What a candidate sampler costs by itself; valid Python 3.7 (see worker.py)."""


def sampler(batch, sampled, words):
    def make(tf, np):
        with tf.Graph().as_default():
            true = tf.constant(np.arange(batch).reshape(batch, 1) % words, tf.int64)
            draw = tf.nn.log_uniform_candidate_sampler(true, 1, sampled, True, words, seed=1)
            session = tf.Session()
            call = session.make_callable(list(draw))
        return call

    return make


CASES = {"512 of 40,000 words, log-uniform": sampler(1024, 512, 40000)}
CASES = {name.replace(" ", "_"): make for name, make in CASES.items()}  # names have no spaces
