//go:build ignore

/* Functions whose speed depends on the optimizer, to be compiled at two levels. Each takes some ten microseconds. */

int sum(const int *p, int n)
{
	int s = 0;
	for (int i = 0; i < n; i++)
		s += p[i] * 3;
	return s;
}

void scale(float *f, const float *g, int n)
{
	for (int i = 0; i < n; i++)
		f[i] = f[i] * 0.5f + g[i];
}

unsigned crc(const unsigned char *p, int n)
{
	unsigned c = ~0u;
	for (int i = 0; i < n; i++) {
		c ^= p[i];
		for (int k = 0; k < 8; k++)
			c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
	}
	return ~c;
}

int find(const unsigned char *p, int n, int byte)
{
	for (int i = 0; i < n; i++)
		if (p[i] == byte)
			return i;
	return -1;
}

void multiply(double (*a)[24], double (*b)[24], double (*c)[24])
{
	for (int i = 0; i < 24; i++)
		for (int j = 0; j < 24; j++) {
			double s = 0;
			for (int k = 0; k < 24; k++)
				s += a[i][k] * b[k][j];
			c[i][j] = s;
		}
}

void sort(int *p, int n)
{
	for (int i = 1; i < n; i++) {
		int x = p[i], j = i;
		while (j > 0 && p[j - 1] > x) {
			p[j] = p[j - 1];
			j--;
		}
		p[j] = x;
	}
}
