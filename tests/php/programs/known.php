<?php
// A program whose calls are known. A line that makes calls says which, and how often in one round: "#> caller callee
// count". All rounds are the same, so calls have the same shares in every part of a run. A round makes 101 calls,
// a prime number: no stride marches in step with it.

interface Shape
{
    public function area(int $n): int;
}

final class Square implements Shape
{
    public function area(int $n): int { return $n * $n; }
}

final class Strip implements Shape
{
    public function area(int $n): int { return $n * $this->width(); } #> Strip::area Strip::width 12

    private function width(): int { return 3; }
}

final class Dot implements Shape
{
    public function area(int $n): int { return 0; }
}

function leaf(int $n): int { return ($n * 31 + 7) & 0xffff; }

function twice(int $n): int
{
    return leaf($n) #> twice leaf 8
        + leaf($n + 1); #> twice leaf 8
}

function countdown(int $n): int
{
    return $n === 0 ? 0 : 1 + countdown($n - 1); #> countdown countdown 4
}

function numbers(int $n)
{
    for ($i = 0; $i < $n; $i++) {
        yield $i;
    }
}

final class Round
{
    private int $sum = 0;

    public static function all(array $shapes, int $rounds): int
    {
        $round = new self();
        for ($i = 0; $i < $rounds; $i++) {
            $round->once($shapes, $i); #> Round::all Round::once 1
        }
        return $round->sum;
    }

    private function once(array $shapes, int $n): void
    {
        foreach ($shapes as $shape) {
            $this->add($shape->area($n)); #> Round::once Square::area 5, Round::once Strip::area 12, Round::once Dot::area 3, Round::once Round::add 20
        }
        for ($i = 0; $i < 8; $i++) {
            $this->add(twice($n)); #> Round::once twice 8, Round::once Round::add 8
        }
        $this->add(countdown(4)); #> Round::once countdown 1, Round::once Round::add 1
        // The caller of a callback is the user function below the internal one.
        foreach (array_map(function (int $i): int { return $i + 1; }, [1, 2, 3, 4]) as $i) { #> Round::once Round::{closure} 4
            $this->sum += $i;
        }
        // A generator is entered when it is called, for each value, and once more to find its end.
        foreach (numbers(4) as $i) { #> Round::once numbers 6
            $this->sum += $i;
        }
    }

    private function add(int $n): void { $this->sum = ($this->sum + $n) & 0xffffffff; }
}

// Orders: "run N" makes N rounds and is answered by what they compute. "spin N" is busy for N ms and calls nothing that
// has a probe; it is answered by the ns for which the process did nothing: each step above 2 us, which are of the kernel.
$shapes = [];
foreach ([Square::class => 5, Strip::class => 12, Dot::class => 3] as $class => $count) {
    for ($i = 0; $i < $count; $i++) {
        $shapes[] = new $class();
    }
}
echo "ready\n";
while (($line = fgets(STDIN)) !== false) {
    [$verb, $n] = explode(' ', trim($line));
    if ($verb === 'spin') {
        $lost = 0;
        for ($now = hrtime(true), $end = $now + $n * 1000000; $now < $end; $now = $next) {
            $next = hrtime(true);
            if ($next - $now > 2000) {
                $lost += $next - $now;
            }
        }
        echo "$lost\n";
        continue;
    }
    printf("%d %x\n", $n, Round::all($shapes, (int) $n));
}
