<?php
// A process that starts children while it makes calls, so that some of them inherit a semaphore that is set. Orders:
// "run N" forks N children, which make calls, too. Each is answered by one line, with the sum of their exit codes.

function work(int $n): int
{
    $sum = 0;
    for ($i = 0; $i < $n; $i++) {
        $sum = step($sum, $i);
    }
    return $sum;
}

function step(int $sum, int $i): int { return ($sum * 31 + $i) & 0xffff; }

echo "ready\n";
while (($line = fgets(STDIN)) !== false) {
    [$verb, $n] = explode(' ', trim($line));
    $sum = 0;
    for ($i = 0; $i < (int) $n; $i++) {
        $sum += work(20000) & 1;
        $child = pcntl_fork();
        if ($child === 0) {
            exit(work(200000) & 1);
        }
        pcntl_waitpid($child, $status);
        $sum += pcntl_wexitstatus($status);
    }
    printf("%d %x\n", $n, $sum);
}
