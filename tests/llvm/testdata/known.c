//go:build ignore

/* Loops whose iterations are known: the number is in the comment on the line of each loop. */
#include <stdio.h>
#include <string.h>

unsigned opaque(unsigned x);

static int a[1000], b[1000];
static float f[1024], g[1024];
static char text[] = "a loop correlation technique to improve performance auditing";

int sum(const int *p, int n)
{
	int s = 0;
	for (int i = 0; i < n; i++) // 1777
		s += p[i];
	return s;
}

int find(const char *p, int c)
{
	for (int i = 0; p[i] != 0; i++) // 54
		if (p[i] == c)
			return i;
	return -1;
}

float constant(void)
{
	float s = 0;
	for (int i = 0; i < 8; i++) // 8
		s += f[i];
	return s;
}

void vectorized(float x)
{
	for (int i = 0; i < 1024; i++) // 1024
		f[i] = f[i] * x + g[i];
}

int conditional(int n)
{
	int s = 0;
	for (int i = 0; i < n; i++) // 500
		if (a[i] & 1)
			s += b[i];
	return s;
}

int continued(int n)
{
	int s = 0, i = 0;
	while (i < n) { // 300
		i++;
		if (i % 3 == 0)
			continue;
		s += b[i];
		if (i % 7 == 0)
			continue;
		s ^= a[i];
	}
	return s;
}

int at_least_once(int n)
{
	int s = 0;
	do { // 99
		s += n;
	} while (--n > 0);
	return s;
}

int forever(int n)
{
	int s = 0;
	for (;;) { // 41
		if (s > n)
			return s;
		s += 25;
	}
}

unsigned calls(int n)
{
	unsigned s = 1;
	for (int i = 0; i < n; i++) // 77
		s ^= opaque(s + i);
	return s;
}

int nested(int n)
{
	int s = 0;
	for (int i = 0; i < n; i++) // 20
		for (int j = 0; j < i; j++) // 190
			for (int k = 0; k < 4; k++) // 760
				s += a[i + j] * k;
	return s;
}

int broken(int n)
{
	int s = 0;
	for (int i = 0; i < n; i++) { // 30
		for (int j = 0; j < n; j++) { // 435
			if (j == i)
				break;
			s += a[j];
		}
	}
	return s;
}

static int recursive(int n)
{
	int s = 0;
	for (int i = 0; i < n; i++) // 127
		s += recursive(i) + 1;
	return s;
}

void cleared(void)
{
	for (int i = 0; i < 1000; i++) // 1000
		b[i] = 0;
}

int never(int n)
{
	int s = 0;
	for (int i = 0; i < n; i++) // 0
		s += a[i];
	return s;
}

static inline int inlined(int n)
{
	int s = 0;
	for (int i = 0; i < n; i += 2) // 45
		s += a[i] >> 1;
	return s;
}

int main(void)
{
	for (int i = 0; i < 1000; i++) { // 1000
		a[i] = (int)(opaque(i) % 1000);
		b[i] = (int)(opaque(a[i]) % 1000);
	}
	for (int i = 0; i < 1024; i++) { // 1024
		f[i] = i;
		g[i] = 1;
	}
	printf("%d %d\n", sum(a, 777), sum(b, 1000));
	printf("%d\n", find(text, 'd'));
	vectorized(0.5f);
	printf("%g %g\n", constant(), f[1023]);
	printf("%d %d %d\n", conditional(500), continued(300), at_least_once(99));
	printf("%d %u %d %d\n", forever(1000), calls(77), nested(20), broken(30));
	printf("%d %d\n", recursive(7), inlined(30) + inlined(60));
	cleared();
	printf("%d %d\n", b[500], never(b[500]));
	return 0;
}
