// Groups, sorts and formats orders: closures, maps and strings of a dynamic language.
def orders(int n, long seed) {
    def random = new Random(seed)
    (1..n).collect { [id: it, customer: "c${random.nextInt(500)}", item: "i${random.nextInt(90)}", amount: random.nextInt(10_000)] }
}

long checksum = 0
int rounds = args[0] as int
for (round in 1..rounds) {
    def all = orders(6000, round)
    def byCustomer = all.groupBy { it.customer }
    def totals = byCustomer.collectEntries { customer, list -> [customer, list.sum { it.amount }] }
    def best = totals.sort { -it.value }.take(20)
    def lines = best.collect { customer, total -> "${customer.padRight(8)} ${total} ${byCustomer[customer].collect { it.item }.unique().sort().join(',')}" }
    checksum = checksum * 31 + lines.join('\n').hashCode()
}
println checksum
