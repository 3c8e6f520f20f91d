"""A guest for recordings: it says what its code objects are, then waits."""
import dis
import json
import os
import sys


def plain(a, b):
    c = a + b

    return [
        a,
        b,
        c * 2,
    ]


class Outer:
    class Inner:
        def method(self):
            return (lambda x:
                    x + 1)(2)

    def generator(self):
        for i in range(3):
            yield i


def quadratwurzel_π(größe):
    try:
        return größe ** 0.5
    finally:
        pass


def 名前():
    return {k: v for k, v in zip("ab", "cd")}


# GAP: blank lines, so that a delta of lines has more than one byte


def a_function_with_a_name_that_is_so_long_that_it_is_not_read_with_the_head_of_its_string_object_so_that_another_read_has_to_follow_and_goes_on_and_on_until_there_are_more_than_two_hundred_and_fifty_six_bytes_of_it_which_is_quite_a_lot_for_the_name_of_a_function():
    x = 1
    return x


def codes_of(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, type(code)):
            yield from codes_of(constant)


def line_of(code, index):
    """The line of an instruction, by Python's own account."""
    if not hasattr(code, "co_lines"):
        line = code.co_firstlineno
        for start, starts_at in dis.findlinestarts(code):
            if start <= 2 * index:
                line = starts_at
        return line
    for start, end, line in code.co_lines():
        if start <= 2 * index < end:
            return line or 0
    return 0


def describe(code):
    return {
        "Addr": id(code),
        "Name": getattr(code, "co_qualname", code.co_name),
        "File": code.co_filename,
        "First": code.co_firstlineno,
        "Lines": [line_of(code, index) for index in range(len(code.co_code) // 2)],
    }


def main():
    with open(__file__, encoding="utf-8") as file:
        source = file.read().replace("# GAP", 300 * "\n" + "# GAP", 1)
    wanted = list(codes_of(compile(source, "/srv/shop/guest.py", "exec")))
    library = "/usr/lib/python3.%d/json/__init__.py" % sys.version_info.minor
    wanted += codes_of(compile("def loads(text):\n    return text\n", library, "exec"))
    json.dump([describe(code) for code in wanted], sys.stdout)
    print(flush=True)
    sys.stdin.read()


main()
