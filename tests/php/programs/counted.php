<?php
// Runs another program of this directory with every call counted by PHP itself: as a file is loaded, each of its
// functions gets a statement at its beginning that looks who called it. No line moves by that. At its end the program
// prints the calls as JSON: [[caller, line, callee, count], ...]. A generator counts once, and not for each value.
//
//   echo run 1 | php counted.php parser.php

final class Calls
{
    private static array $counts = [];

    /** Is called by the function that is counted. */
    public static function count(): void
    {
        $frames = debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS, 8);
        // What an internal function calls back has no line, and is called where that one is.
        for ($i = 1; !isset($frames[$i]['line']); $i++);
        $call = [self::name($frames[$i + 1]), $frames[$i]['line'], self::name($frames[1])];
        $key = implode("\t", $call);
        self::$counts[$key] ??= [...$call, 0];
        self::$counts[$key][3]++;
    }

    private static function name(array $frame): string
    {
        if ($frame['function'] === 'eval') {
            return 'main'; // of a file
        }
        return isset($frame['class']) ? $frame['class'] . '::' . $frame['function'] : $frame['function'];
    }

    public static function tell(): void
    {
        echo json_encode(array_values(self::$counts)), "\n";
    }

    /** Runs a file with its functions counted. */
    public static function load(string $file): void
    {
        $body = false; // of a function comes next
        $text = '';
        foreach (token_get_all(file_get_contents($file)) as $token) {
            $text .= is_array($token) ? $token[1] : $token;
            if (is_array($token) && $token[0] === T_FUNCTION) {
                $body = true;
            } elseif ($body && ($token === '{' || $token === ';')) { // ; ends a function without a body
                $text .= $token === '{' ? ' \Calls::count();' : '';
                $body = false;
            }
        }
        eval(substr($text, strlen('<?php')));
    }
}

// Comes before the loader of PHP-Parser, which is asked for what this one does not find.
spl_autoload_register(function (string $class): void {
    $file = '/usr/share/php/' . strtr($class, '\\', '/') . '.php';
    if (is_file($file)) {
        Calls::load($file);
    }
});
register_shutdown_function([Calls::class, 'tell']);
Calls::load(__DIR__ . '/' . $argv[1]);
