// The state of a page is its URL's fragment: a link shows the same.
export class State {
	#listeners = [];

	constructor() {
		this.read();
		window.addEventListener("hashchange", () => {
			this.read();
			this.#tell();
		});
	}

	read() {
		this.values = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
	}

	get(key) {
		return this.values[key] ?? "";
	}

	// with is the state with other values, to read.
	with(changes) {
		const values = {...this.values, ...changes};
		return {get: (key) => values[key] ?? ""};
	}

	// set changes some values; empty ones are left out. With remember it can be undone with the browser's Back.
	set(changes, remember = false) {
		const before = new URLSearchParams(this.values).toString();
		for (const [key, value] of Object.entries(changes)) {
			if (value) this.values[key] = String(value);
			else delete this.values[key];
		}
		const after = new URLSearchParams(this.values).toString();
		if (after === before) return;
		history[remember ? "pushState" : "replaceState"](null, "", "#" + after);
		this.#tell();
	}

	onChange(listener) {
		this.#listeners.push(listener);
	}

	#tell() {
		for (const listener of this.#listeners) listener();
	}
}
