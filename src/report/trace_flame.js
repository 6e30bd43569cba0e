/* A flame graph of what is live at the cursor, by the program's lines: a row for each depth of calls, the outermost above;
 * as wide as the bytes that it and what it calls hold. A click makes one of them the whole width. */
"use strict";

let flame = null;     /* the frames of Python among the calls: { parent, frame, node } */
let flameRoot = 0;    /* the node that has the whole width */
const FLAME_LEAST = 1 / 400, FLAME_ROWS = 60;

const isPython = (frame) => names.texts[names.frameFile[frame]].endsWith(".py");

/* The nodes of all stacks: calls of the same line by the same node are one; what is not Python belongs to its caller. */
function flameTree() {
	const calls = names.callFrame.length, node = new Uint32Array(calls), parent = [0], frame = [-1], known = new Map();
	for (let call = 1; call < calls; call++) {
		const above = node[names.callParent[call]], of = names.callFrame[call];
		node[call] = above;
		if (!isPython(of)) continue;
		const key = above * names.frameFile.length + of;
		if (!known.has(key)) {
			known.set(key, parent.length);
			parent.push(above);
			frame.push(of);
		}
		node[call] = known.get(key);
	}
	return { node: node, parent: parent, frame: frame };
}

/* Bytes of each node with all below it, and of it alone. */
function flameSums() {
	const all = new Float64Array(flame.parent.length), own = new Float64Array(flame.parent.length);
	for (let life = 0; life < device.count && device.begin[life] <= cursor; life++)
		if (device.end[life] > cursor) own[flame.node[device.stack[life]]] += bytesOf(life);
	all.set(own);
	for (let node = all.length - 1; node > 0; node--) all[flame.parent[node]] += all[node];
	return { all: all, own: own };
}

function flameName(node) {
	if (!node) return "all that is live";
	const frame = flame.frame[node], file = names.texts[names.frameFile[frame]].split("/").slice(-2).join("/");
	return names.texts[names.frameName[frame]] + "  " + file + ":" + names.frameLine[frame];
}

function flameBox(node, row, left, width, sums) {
	const box = element("button", flameName(node)), hue = node ? 18 + flame.frame[node] * 47 % 40 : 212;
	box.type = "button";
	box.style.left = 100 * left + "%";
	box.style.width = 100 * width + "%";
	box.style.top = 20 * row + "px";
	box.style.background = "hsl(" + hue + " 62% " + (dark.matches ? 28 : 80) + "%)";
	const lines = [["b", flameName(node)], ["div", size(sums.all[node]) + ", " + (100 * sums.all[node] / (sums.all[0] || 1)).toFixed(1) + " % of what is live"]];
	if (node) lines.push(["div", size(sums.own[node]) + " of that by this line itself"]);
	box.addEventListener("pointermove", (event) => showTip(lines, event.clientX, event.clientY));
	box.addEventListener("pointerleave", () => showTip(null));
	box.addEventListener("click", () => { flameRoot = node; fillFlame(); });
	box.setAttribute("aria-label", lines.map((line) => line[1]).join(", "));
	return box;
}

/* The nodes above the root lie over its whole width, so that a click on one goes back to it. */
function fillFlame() {
	const box = $("flame");
	flame = flame || flameTree();
	const sums = flameSums(), children = new Map(), above = [];
	box.textContent = "";
	if (!sums.all[flameRoot]) flameRoot = 0;
	for (let node = 1; node < sums.all.length; node++) {
		if (!sums.all[node]) continue;
		if (!children.has(flame.parent[node])) children.set(flame.parent[node], []);
		children.get(flame.parent[node]).push(node);
	}
	for (let node = flameRoot; node; node = flame.parent[node]) above.unshift(flame.parent[node]);
	above.forEach((node, row) => box.append(flameBox(node, row, 0, 1, sums)));
	let rows = above.length;
	const put = (node, row, left) => {
		const width = sums.all[node] / sums.all[flameRoot];
		if (width < FLAME_LEAST || row >= FLAME_ROWS) return;
		rows = Math.max(rows, row + 1);
		box.append(flameBox(node, row, left, width, sums));
		for (const child of (children.get(node) || []).sort((a, b) => sums.all[b] - sums.all[a])) {
			put(child, row + 1, left);
			left += sums.all[child] / sums.all[flameRoot];
		}
	};
	if (sums.all[0]) put(flameRoot, above.length, 0);
	if (!flameRoot && sums.own[0] / sums.all[0] >= FLAME_LEAST) {
		const rest = element("span", "no line of Python: " + size(sums.own[0])), part = sums.own[0] / sums.all[0];
		rest.style.left = 100 * (1 - part) + "%";
		rest.style.width = 100 * part + "%";
		box.append(rest);
		rows = Math.max(rows, 2);
	}
	box.style.height = 20 * rows + "px";
	$("flamecard").hidden = flame.parent.length < 2;
	$("cursor3").textContent = instant(cursor);
}
