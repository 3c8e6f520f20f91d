"""Spends its time in known places, and says how much CPU time it spent in each.

It prints "ready", works until its input ends, and then prints the CPU time of each place in seconds,
as JSON. With an argument it does so in another way: "exec INTERPRETER" works until there is a byte of
input, and then executes itself again with that interpreter, "fork" goes on in a child process, "sub"
works in a subinterpreter, too.
"""
import json
import os
import random
import select
import sys
import threading
import time

spent = {}
stopped = False


def spin(n):
    x = 0
    for i in range(n):
        x += i * i
    return x


class Shop:
    def heavy(self):
        return spin(9000)  # LINE heavy

    def light(self):
        return spin(3000)  # LINE light

    def key(self, item):
        return spin(200)  # LINE key

    def ordered(self):
        return sorted(range(20), key=self.key)  # LINE ordered

    def steps(self, n):
        for i in range(n):
            yield spin(1500)  # LINE steps

    def consumed(self):
        return sum(self.steps(4))  # LINE consumed

    def descend(self, depth):
        if depth == 0:
            return spin(6000)
        return self.descend(depth - 1)  # LINE descend

    def descended(self):
        return self.descend(40)  # LINE descended


def timed(place):
    """Calls a place and adds up its CPU time, by the thread's own clock."""
    began = time.thread_time()
    place()
    spent[place.__name__] = spent.get(place.__name__, 0) + time.thread_time() - began


def background():
    while not stopped:
        spin(2000)
        time.sleep(0.001)


def work():
    shop = Shop()
    places = [shop.heavy, shop.light, shop.ordered, shop.consumed, shop.descended]
    while not stopped:
        random.shuffle(places)  # In one order all the time, the places would be in step with samples.
        for place in places:
            timed(place)


def wait():
    global stopped
    sys.stdin.read()
    stopped = True


def run():
    threading.Thread(target=wait, daemon=True).start()
    thread = threading.Thread(target=background)
    thread.start()
    if sys.argv[1:2] != ["again"]:
        print("ready", flush=True)
    work()
    thread.join()
    print(json.dumps(spent), flush=True)


def subinterpreter():
    """Has a function of the same name as this one's run in a subinterpreter, again and again."""
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    code = "def inside():\n    x = 0\n    for i in range(200000):\n        x += i * i\ninside()\n"
    sub = interpreters.create()
    start = getattr(interpreters, "exec", None) or interpreters.run_string
    threading.Thread(target=wait, daemon=True).start()
    print("ready", flush=True)

    def outside():
        start(sub, code)

    while not stopped:
        timed(outside)
        timed(Shop().heavy)
    print(json.dumps(spent), flush=True)


def first():
    print("ready", flush=True)
    while not select.select([0], [], [], 0)[0]:
        spin(2000)
    os.read(0, 1)


if sys.argv[1:2] == ["exec"]:
    first()
    os.execv(sys.argv[2], [sys.argv[2], __file__, "again"])
elif sys.argv[1:2] == ["fork"]:
    first()
    sys.argv[1:] = ["again"]
    pid = os.fork()
    if pid == 0:
        run()
    else:
        os.waitpid(pid, 0)
elif sys.argv[1:2] == ["sub"]:
    subinterpreter()
else:
    run()
