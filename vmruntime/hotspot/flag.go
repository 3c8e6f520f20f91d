package hotspot

// Flag reads a command line flag of type bool.
func (p *Process) Flag(name string) (bool, error) { return readFlag(p.target, &p.schema.flags, name) }

// Number reads a command line flag of type intx.
func (p *Process) Number(name string) (int64, error) {
	return readNumber(p.target, &p.schema.flags, name)
}
