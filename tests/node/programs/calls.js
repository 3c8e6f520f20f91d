// Calls that are known: three of four calls of leaf come from often, the fourth from rarely. It ends with its input.
'use strict'

function leaf(x) {
	let sum = x
	for (let i = 0; i < 20; i++) sum = (sum * 31 + i) | 0
	return sum
}

function often(x) {
	return leaf(x) ^ leaf(x + 1) ^ leaf(x + 2)
}

function rarely(x) {
	return leaf(x)
}

function round(n) {
	let sum = 0
	for (let i = 0; i < n; i++) sum ^= often(i) ^ rarely(i)
	return sum
}

const answer = round(1000)
console.log('ready')

function work() {
	if (round(1000) !== answer) process.exit(1) // it is hurt
	setImmediate(work)
}

process.stdin.on('end', () => process.exit(0)).resume()
work()
