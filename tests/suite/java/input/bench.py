"""Three small Python programs: a search tree, the queens' problem, and a dictionary of words."""


class Node(object):
    def __init__(self, key):
        self.key = key
        self.left = None
        self.right = None

    def insert(self, key):
        node = self
        while key != node.key:
            if key < node.key:
                if node.left is None:
                    node.left = Node(key)
                node = node.left
            else:
                if node.right is None:
                    node.right = Node(key)
                node = node.right

    def walk(self, depth, visit):
        if self.left:
            self.left.walk(depth + 1, visit)
        visit(self.key, depth)
        if self.right:
            self.right.walk(depth + 1, visit)


class Checksum(object):
    def __init__(self):
        self.value = 0

    def add(self, key, depth):
        self.value = (self.value * 31 + key * depth) & 0xffffffff


def numbers(count, seed):
    """The linear congruential generator of the C standard's example."""
    for _ in range(count):
        seed = (seed * 1103515245 + 12345) & 0x7fffffff
        yield seed


def tree(count):
    root = Node(500000)
    for number in numbers(count, 1):
        root.insert(number % 1000000)
    checksum = Checksum()
    root.walk(0, checksum.add)
    return checksum.value


def queens(size, row, columns, falling, rising):
    if row == size:
        return 1
    count = 0
    for column in range(size):
        if column not in columns and row + column not in rising and row - column not in falling:
            count += queens(size, row + 1, columns | set([column]), falling | set([row - column]),
                            rising | set([row + column]))
    return count


def words(count):
    counts = {}
    for number in numbers(count, 12345):
        word = "w%d" % (number % 997)
        counts[word] = counts.get(word, 0) + 1
    return sum(len(word) * count for word, count in sorted(counts.items()))


def main(items, board):
    return tree(items) + queens(board, 0, set(), set(), set()) + words(2 * items)
