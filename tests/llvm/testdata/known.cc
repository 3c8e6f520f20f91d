//go:build ignore

// Loops of C++ whose iterations are known: the number is in the comment on the line of each loop.
#include <algorithm>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" unsigned opaque(unsigned x);

template <typename T> T total(const std::vector<T> &v)
{
	T s = 0;
	for (const T &x : v) // 300
		s += x;
	return s;
}

struct Filter {
	virtual ~Filter() = default;
	virtual bool keep(int x) const = 0;
};

struct Even final : Filter {
	bool keep(int x) const override { return x % 2 == 0; }
};

static int count(const Filter &filter, int n)
{
	int s = 0;
	for (int i = 0; i < n; i++) // 250
		if (filter.keep(i))
			s++;
	return s;
}

static int thrower(int n)
{
	int s = 0;
	for (int i = 0; i < n; i++) { // 38
		if (i == 19)
			throw std::runtime_error("enough");
		s += int(opaque(i) & 3);
	}
	return s;
}

static int catcher()
{
	int s = 0;
	for (int i = 0; i < 2; i++) { // 2
		try {
			s += thrower(20);
		} catch (const std::exception &e) {
			s += int(std::string(e.what()).size());
		}
	}
	return s;
}

struct Table {
	int squares[64];
	constexpr Table() : squares()
	{
		for (int i = 0; i < 64; i++) // 0
			squares[i] = i * i;
	}
};

static constexpr Table table;

int main()
{
	std::vector<int> v;
	for (int i = 0; i < 100; i++) // 100
		v.push_back(int(opaque(i) % 50));
	std::vector<long> w(v.begin(), v.end());
	std::vector<double> d(v.begin(), v.end());
	std::map<int, int> m;
	for (int x : v) // 100
		m[x]++;
	int most = 0;
	std::for_each(m.begin(), m.end(), [&](auto &e) {
		for (int i = 0; i < e.second; i++) // 100
			most = std::max(most, i);
	});
	std::printf("%d %ld %g %d\n", total(v), total(w), total(d), most);
	std::printf("%d %d %d\n", count(Even(), 250), catcher(), table.squares[v.size() % 64]);
	return 0;
}
