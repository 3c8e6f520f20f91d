// Balanced trees, property access and strings in a JavaScript engine.
function Node(key, left, right) { this.key = key; this.left = left; this.right = right; this.height = 1 + Math.max(left ? left.height : 0, right ? right.height : 0); }

function height(n) { return n ? n.height : 0; }

function balanced(key, left, right) {
    if (height(left) > height(right) + 1) {
        if (height(left.left) >= height(left.right)) return new Node(left.key, left.left, new Node(key, left.right, right));
        return new Node(left.right.key, new Node(left.key, left.left, left.right.left), new Node(key, left.right.right, right));
    }
    if (height(right) > height(left) + 1) {
        if (height(right.right) >= height(right.left)) return new Node(right.key, new Node(key, left, right.left), right.right);
        return new Node(right.left.key, new Node(key, left, right.left.left), new Node(right.key, right.left.right, right.right));
    }
    return new Node(key, left, right);
}

function insert(n, key) {
    if (!n) return new Node(key, null, null);
    if (key < n.key) return balanced(n.key, insert(n.left, key), n.right);
    if (key > n.key) return balanced(n.key, n.left, insert(n.right, key));
    return n;
}

function walk(n, visit) { if (n) { walk(n.left, visit); visit(n); walk(n.right, visit); } }

var rounds = parseInt(arguments[0], 10), checksum = 0;
for (var round = 0; round < rounds; round++) {
    var seed = round + 1, root = null, words = [];
    for (var i = 0; i < 12000; i++) {
        seed = (seed * 1103515245 + 12345) % 2147483648;
        root = insert(root, seed % 50000);
    }
    walk(root, function (n) { if (n.key % 7 === 0) words.push("k" + n.key); });
    checksum = (checksum * 31 + words.join(" ").length + root.height) % 1000003;
}
print(checksum);
