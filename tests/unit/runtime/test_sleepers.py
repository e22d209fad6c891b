"""Which steps are asleep, asked from other threads."""

import headrace as tf
from headrace._src.devices.pending import Pending
from headrace._src.runtime import Step


def test_a_step_that_is_awake_may_change_what_it_waits_for():
    with tf.Graph().as_default(), tf.Session() as session:
        plan = session._plan_for([tf.constant(1.0)], None, None)
        step = Step(plan.variants.whole())

        class Restless(Pending):
            @property
            def works(self):
                step._waiting[Pending("another")] = step._root, None, 0.0
                return False

        step._waiting[Restless("one")] = step._root, None, 0.0
        assert step.sleeper() is None
