/* Two rasters over the same columns of time, in which every pixel is one allocation (or none): what is drawn is exact at
 * every zoom, for any number of allocations, and what lies under the pointer is looked up, not searched.
 *
 *   columns   a column stands for a stretch of events and shows the instant of its highest requested bytes
 *   stack     live allocations on top of one another in the order in which they began; one that is freed lets those
 *             above it move down
 *   map       blocks at their addresses, gaps between regions left out; what is reserved and not live is a hole
 *
 * Rows count from below. A column is copied from the one before as far as nothing below changed. */
const NeapDraw = (function () {
	"use strict";
	const NEVER = NeapData.NEVER;

	/* The last event that has happened at time `x`. */
	function eventAtTime(times, x) {
		let low = 0, high = times.length - 1;
		while (low < high) {
			const middle = (low + high + 1) >> 1;
			if (times[middle] <= x) low = middle; else high = middle - 1;
		}
		return low;
	}

	/* Events (from device.from) that the columns show; never falls. */
	function chooseInstants(device, view, width) {
		const chosen = new Int32Array(width), last = device.length - 1, scale = (view.x1 - view.x0) / width;
		for (let c = 0; c < width; c++) {
			const left = view.x0 + c * scale, right = left + scale;
			let low = view.byTime ? eventAtTime(device.times, left) : Math.floor(left);
			let high = view.byTime ? eventAtTime(device.times, right) : Math.ceil(right) - 1;
			low = Math.min(Math.max(low, 0), last);
			high = Math.min(Math.max(high, low), last);
			chosen[c] = low === high ? low : device.requested.at(low, high);
			if (c > 0 && chosen[c] < chosen[c - 1]) chosen[c] = chosen[c - 1];
		}
		return chosen;
	}

	/* Of intervals of events those that some column shows, in their order: id, first column, column after the last. */
	function chooseShown(begin, end, count, from, instants) {
		const width = instants.length, first = instants[0], last = instants[width - 1];
		const columnOf = new Int32Array(last - first + 1);
		for (let c = 0, e = first; c < width; c++)
			for (; e <= instants[c]; e++) columnOf[e - first] = c;
		const id = new Int32Array(count), c0 = new Int32Array(count), c1 = new Int32Array(count);
		let shown = 0;
		for (let i = 0; i < count; i++) {
			const b = begin[i] - from, e = end[i] === NEVER ? NEVER : end[i] - from;
			if (e <= first || b > last) continue;
			const left = b <= first ? 0 : columnOf[b - first], right = e > last ? width : columnOf[e - first];
			if (left >= right) continue;
			id[shown] = i; c0[shown] = left; c1[shown] = right; shown++;
		}
		return { count: shown, id: id.subarray(0, shown), c0: c0.subarray(0, shown), c1: c1.subarray(0, shown) };
	}

	/* Sums of bytes over items in their order; each item can change (a Fenwick tree). */
	class Sums {
		constructor(count) {
			this.tree = new Float64Array(count + 1);
			this.count = count;
			this.total = 0;
			for (this.highest = 1; this.highest * 2 <= count;) this.highest *= 2;
		}
		add(item, bytes) {
			this.total += bytes;
			for (let i = item + 1; i <= this.count; i += i & -i) this.tree[i] += bytes;
		}
		below(item) {
			let sum = 0;
			for (let i = item; i > 0; i -= i & -i) sum += this.tree[i];
			return sum;
		}
		/* The item that covers `offset`, which is less than the total; `start` is then where it begins. */
		at(offset) {
			let item = 0, rest = offset;
			for (let step = this.highest; step > 0; step >>= 1)
				if (item + step <= this.count && this.tree[item + step] <= rest) {
					item += step;
					rest -= this.tree[item];
				}
			this.start = offset - rest;
			return item;
		}
	}

	/* pick[column * height + row] = 1 + index in shown; 0: nothing. The work for a column is that of what can be seen in
	 * it above the lowest change, however much is live. */
	function stack(device, shown, view, width, height) {
		const pick = new Int32Array(width * height), ends = byEnd(shown, width), sums = new Sums(shown.count);
		const perRow = (view.y1 - view.y0) / height, y0 = view.y0;
		const rowOf = (offset) => Math.min(Math.max(Math.ceil((offset - y0) / perRow - 0.5), 0), height);
		const bytes = (item) => device.sizes[device.size[shown.id[item]]];
		for (let c = 0, base = 0, next = 0; c < width; c++, base += height) {
			let lowest = next;
			for (let k = ends.first[c]; k < ends.first[c + 1]; k++) {
				const item = ends.items[k];
				sums.add(item, -bytes(item));
				lowest = Math.min(lowest, item);
			}
			const same = lowest === next;
			for (; next < shown.count && shown.c0[next] <= c; next++) sums.add(next, bytes(next));
			let row = same && lowest === next ? height : rowOf(sums.below(lowest));
			if (c > 0) pick.copyWithin(base, base - height, base - height + row);
			else row = 0;
			while (row < height) {
				const offset = y0 + (row + 0.5) * perRow;
				if (offset >= sums.total) break; /* the rest is 0 */
				const item = sums.at(offset), top = Math.max(rowOf(sums.start + bytes(item)), row + 1);
				pick.fill(item + 1, base + row, base + top);
				row = top;
			}
		}
		return pick;
	}

	/* Rows that items cover: where they begin and how many bytes they have, at `perRow` bytes a row from `low` on. At
	 * least one row, so that a small block can be seen. */
	function rowsOf(list, begin, bytes, low, perRow, height) {
		const bottom = new Int32Array(list.count), top = new Int32Array(list.count);
		for (let i = 0; i < list.count; i++) {
			const from = (begin(list.id[i]) - low) / perRow, to = from + bytes(list.id[i]) / perRow;
			let b = Math.ceil(from - 0.5), t = Math.ceil(to - 0.5);
			if (t <= b) { b = Math.floor(from); t = b + 1; }
			bottom[i] = Math.min(Math.max(b, 0), height);
			top[i] = Math.min(Math.max(t, 0), height);
		}
		return { bottom: bottom, top: top };
	}

	/* As stack; -1 - index in pieces: reserved, not live. Small blocks can share a row: when the one that is seen there
	 * goes, the live ones are gone through for another. */
	function map(device, shown, pieces, view, width, height) {
		const pick = new Int32Array(width * height), perRow = (view.m1 - view.m0) / height;
		const blocks = rowsOf(shown, (i) => device.place[device.address[i]], (i) => device.sizesRounded[device.size[i]], view.m0, perRow, height);
		const holes = rowsOf(pieces, (i) => device.pieces.place[i], (i) => device.pieces.size[i], view.m0, perRow, height);
		const ends = byEnd(shown, width), pieceEnds = byEnd(pieces, width);
		const begins = Array.from(pieces.c0.keys()).sort((a, b) => pieces.c0[a] - pieces.c0[b]);
		const now = new Int32Array(height), under = new Int32Array(height), sharing = new Int32Array(height);
		const live = new Int32Array(shown.count);
		let count = 0, next = 0, nextPiece = 0, open = [];
		for (let c = 0, base = 0; c < width; c++, base += height) {
			let unsure = false;
			if (pieceEnds.first[c] !== pieceEnds.first[c + 1] || (nextPiece < begins.length && pieces.c0[begins[nextPiece]] <= c)) {
				open = open.filter((p) => pieces.c1[p] > c);
				for (; nextPiece < begins.length && pieces.c0[begins[nextPiece]] <= c; nextPiece++) open.push(begins[nextPiece]);
				under.fill(0);
				for (const p of open) under.fill(-1 - p, holes.bottom[p], holes.top[p]);
				for (let row = 0; row < height; row++) if (now[row] <= 0) now[row] = under[row];
			}
			for (let k = ends.first[c]; k < ends.first[c + 1]; k++) {
				const item = ends.items[k];
				for (let row = blocks.bottom[item]; row < blocks.top[item]; row++) {
					sharing[row]--;
					if (now[row] !== item + 1) continue;
					now[row] = under[row];
					unsure = unsure || sharing[row] > 0;
				}
			}
			for (; next < shown.count && shown.c0[next] <= c; next++) {
				if (blocks.top[next] === blocks.bottom[next]) continue;
				live[count++] = next;
				for (let row = blocks.bottom[next]; row < blocks.top[next]; row++) { sharing[row]++; now[row] = next + 1; }
			}
			if (unsure) {
				let kept = 0;
				for (let k = 0; k < count; k++) {
					const item = live[k];
					if (shown.c1[item] <= c) continue;
					live[kept++] = item;
					for (let row = blocks.bottom[item]; row < blocks.top[item]; row++) if (now[row] <= 0) now[row] = item + 1;
				}
				count = kept;
			}
			pick.set(now, base);
		}
		return pick;
	}

	/* Items in the order of the column in which they are gone: items[first[c]] up to items[first[c + 1]] at c. */
	function byEnd(list, width) {
		const first = new Int32Array(width + 2), items = new Int32Array(list.count);
		for (let i = 0; i < list.count; i++) first[list.c1[i] + 1]++;
		for (let c = 0; c <= width; c++) first[c + 1] += first[c];
		const at = first.slice();
		for (let i = 0; i < list.count; i++) items[at[list.c1[i]]++] = i;
		return { first: first, items: items };
	}

	/* Pixels from picks: a colour for each allocation, darker at its upper edge and where it begins. In strips of a few
	 * columns, which stay in the processor's cache. */
	function paint(image, pick, width, height, colors, shown, paper, hole, holeLine) {
		const pixels = new Uint32Array(image.data.buffer), dark = new Uint32Array(colors.length), strip = 16;
		for (let i = 0; i < colors.length; i++)
			dark[i] = ((colors[i] >>> 1) & 0x7f7f7f7f) + ((colors[i] >>> 2) & 0x3f3f3f3f) | 0xff000000;
		for (let left = 0; left < width; left += strip) {
			const right = Math.min(left + strip, width);
			for (let row = 0; row < height; row++) {
				let to = (height - 1 - row) * width + left;
				for (let c = left, from = left * height + row; c < right; c++, from += height, to++) {
					const item = pick[from];
					if (item === 0) pixels[to] = paper;
					else if (item < 0) pixels[to] = (c + row) % 7 === 0 ? holeLine : hole;
					else if ((row >= 3 && (row + 1 === height || pick[from + 1] !== item) && pick[from - 3] === item) ||
						(shown.c0[item - 1] === c && c > 0 && shown.c1[item - 1] - c > 3)) pixels[to] = dark[item - 1];
					else pixels[to] = colors[item - 1];
				}
			}
		}
	}

	/* The outline of one item, as rows by column: [column, bottom, top]. */
	function outline(pick, shown, index, height) {
		const runs = [];
		for (let c = shown.c0[index]; c < shown.c1[index]; c++) {
			let bottom = -1, top = -1;
			for (let row = 0, at = c * height; row < height; row++, at++)
				if (pick[at] === index + 1) { if (bottom < 0) bottom = row; top = row + 1; }
			if (bottom >= 0) runs.push([c, bottom, top]);
		}
		return runs;
	}

	return { chooseInstants: chooseInstants, chooseShown: chooseShown, stack: stack, map: map, paint: paint,
		outline: outline, eventAtTime: eventAtTime };
})();
