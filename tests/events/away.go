package events

// Found is what rows say of one way to wait, in ns.
type Found struct {
	Rows    []Row
	Time    float64 // sum over all rows, of which:
	Right   float64 // for the cause that the program says
	Delayed float64 // for others that lengthen every wait, see Labels.Delayed
	// VMCall is for what threads call the VM for, such as classes and collections: the program does
	// not know of it.
	VMCall float64
	VM     float64 // time in the VM, for whatever it is
}

// Wrong is the time with other causes.
func (f Found) Wrong() float64 { return f.Time - f.Right - f.Delayed - f.VMCall - f.VM }

// Find adds up the rows of a way to wait. Value is the column of their time.
func (o OffCPU) Find(rows []Row, value int) Found {
	f := Found{Rows: Where(rows, func(r Row) bool { return r.Has(o.Method) })}
	for _, r := range f.Rows {
		ns := r.Values[value]
		f.Time += ns
		switch {
		case r.Cause == o.Cause, r.Cause == Also[o.Cause]:
			f.Right += ns
		case r.Delayed():
			f.Delayed += ns
		case r.Cause == "vm call":
			f.VMCall += ns
		case r.Cause == "vm":
			f.VM += ns
		}
	}
	return f
}
