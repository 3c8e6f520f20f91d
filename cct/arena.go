package cct

const (
	// chunkBits is log2 of the nodes of a chunk: 28 kB of nodes with keys of three words.
	chunkBits = 9
	chunkSize = 1 << chunkBits
	// firstNodes is how many nodes the smallest first chunk has.
	firstNodes = 8
)

// An arena holds the nodes of a tree, by NodeID. It grows by chunks that stay where they are, so
// that a large tree is not copied over and over; the first one grows by doubling, as most trees are
// small. The zero value is empty.
type arena[K comparable] struct {
	chunks [][]node[K] // each with all nodes that there is room for
	used   NodeID
}

// len returns the number of nodes.
func (a *arena[K]) len() int { return int(a.used) }

// at returns the node of id, which must exist. It may move with the next push.
func (a *arena[K]) at(id NodeID) *node[K] { return &a.chunks[id>>chunkBits][id%chunkSize] }

// push adds a node, and returns its id.
func (a *arena[K]) push(n node[K]) NodeID {
	id := a.used
	a.reserve(int(id) + 1)
	a.used++
	*a.at(id) = n
	return id
}

// reserve makes room for n nodes in all, or at least for the next one.
func (a *arena[K]) reserve(n int) {
	chunk := int(a.used) >> chunkBits
	if chunk == len(a.chunks) {
		size := chunkSize
		if chunk == 0 {
			size = min(max(n, firstNodes), chunkSize)
		}
		a.chunks = append(a.chunks, make([]node[K], size))
	}
	if room := len(a.chunks[chunk]); int(a.used%chunkSize) == room { // only the first chunk grows
		larger := make([]node[K], min(max(n, 2*room), chunkSize))
		copy(larger, a.chunks[chunk])
		a.chunks[chunk] = larger
	}
}

// clear forgets all nodes and what their keys point to, and keeps the memory.
func (a *arena[K]) clear() {
	for _, chunk := range a.chunks {
		clear(chunk)
	}
	a.used = 0
}
