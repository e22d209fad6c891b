# A program as people wrote them from 2015 to 2019; tests/programs/test_run_programs.py runs it.
# -*- coding: utf-8 -*-
import urllib2, urllib, StringIO, ConfigParser, Queue, string, sys, os, cPickle as pkl, commands
from itertools import izip, imap
from types import StringType
reload(sys); sys.setdefaultencoding('utf8')
class Foo:
    def next(self): return 1
    def __init__(self, (a, b)=(1, 2)): self.a = a
try:
    raise ValueError, 'x'
except ValueError, e: print 'caught', e
print >>sys.stderr, 'to stderr'
q = Queue.Queue(); q.put(1L); print q.get(), 0777, `1+1`, 1 <> 2, u'\u00e9'.encode('utf-8'), 'abc'.decode('utf-8')
s = StringIO.StringIO(); s.write('hi'); print s.getvalue(), string.join(['a', 'b'], '-'), string.letters[:3], sys.maxint > 0
print zip([1], [2])[0], map(None, [1], [2]), filter(lambda x: x > 1, [1, 2]), range(3) + [4], dict(a=1).items()[0], isinstance(u'x', basestring)
it = iter([1, 2]); print it.next(), reduce(lambda a, b: a + b, [1, 2]), unichr(97), long(3), round(2.5), urllib.quote('a b')
exec "zz = 5"
print zz; n = 10; n /= 4; print n
with open('w.txt', 'wb') as f: f.write('text')
print open('w.txt').read(), sorted([3, 1], lambda a, b: b - a), os.getcwdu()[:1], raw_input.__name__
def gen():
	if True:
	        yield 1
print list(gen()), (lambda (a, b): a + b)((1, 2)), Foo().a, type('a') == StringType, 5 / 2 * 1.0
