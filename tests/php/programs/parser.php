<?php
// A real program: PHP-Parser (Debian: php-parser) reads and prints its own sources. Orders: "run N" does that N times.
// Each is answered by one line, with the length of what was printed.

const SOURCES = '/usr/share/php/PhpParser';
require SOURCES . '/autoload.php';

$files = [];
foreach (new RecursiveIteratorIterator(new RecursiveDirectoryIterator(SOURCES)) as $file) {
    if ($file->getExtension() === 'php') {
        $files[] = $file->getPathname();
    }
}
sort($files);

function once(array $files): int
{
    $parser = (new PhpParser\ParserFactory())->create(PhpParser\ParserFactory::PREFER_PHP7);
    $printer = new PhpParser\PrettyPrinter\Standard();
    $length = 0;
    foreach ($files as $file) {
        $length += strlen($printer->prettyPrint($parser->parse(file_get_contents($file))));
    }
    return $length;
}

echo "ready\n";
while (($line = fgets(STDIN)) !== false) {
    [$verb, $n] = explode(' ', trim($line));
    $length = 0;
    for ($i = 0; $i < (int) $n; $i++) {
        $length = once($files);
    }
    printf("%d %x\n", $n, $length);
}
