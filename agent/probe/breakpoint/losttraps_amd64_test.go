package breakpoint

const lostOnce = 1

// lose executes INT1.
func lose() { int1() }
