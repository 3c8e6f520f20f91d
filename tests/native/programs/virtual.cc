// Calls through virtual functions, the standard library and exceptions, without end.
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

struct Shape {
	virtual ~Shape() = default;
	virtual long area(long n) const = 0;
};

struct Square : Shape {
	__attribute__((noinline)) long area(long n) const override {
		long x = n;
		for (int i = 0; i < 200; i++)
			x = x * 6364136223846793005L + i;
		return x & 0xff;
	}
};

struct Table : Shape {
	std::unordered_map<std::string, long> entries;
	Table() {
		for (long i = 0; i < 5000; i++)
			entries[std::to_string(i * 7919)] = i;
	}
	__attribute__((noinline)) long area(long n) const override {
		auto found = entries.find(std::to_string(n % 5000 * 7919));
		if (found == entries.end())
			throw std::out_of_range("no entry");
		return found->second;
	}
};

__attribute__((noinline)) static long sum(const std::vector<std::unique_ptr<Shape>> &shapes, long n) {
	long total = 0;
	for (auto &shape : shapes)
		total += shape->area(n);
	return total;
}

__attribute__((noinline)) static long order(std::vector<long> &values) {
	std::sort(values.begin(), values.end(), [](long a, long b) { return a % 1013 < b % 1013; });
	return values[0];
}

static volatile long sink;

int main() {
	std::vector<std::unique_ptr<Shape>> shapes;
	shapes.push_back(std::make_unique<Square>());
	shapes.push_back(std::make_unique<Table>());
	std::vector<long> values(3000);
	for (long n = 0;; n++) {
		sink = sink + sum(shapes, n);
		if (n % 1000 == 0) {
			for (size_t i = 0; i < values.size(); i++)
				values[i] = (n + long(i)) * 7919 % 65537;
			sink = sink + order(values);
		}
		if (n % 100 == 0) {
			try {
				sink = sink + shapes[1]->area(-1);
			} catch (const std::out_of_range &) {
				sink = sink + 1;
			}
		}
	}
}
