"use strict";
/* The live page of neap serve: asks /api again and again, and draws what it says. Every text from there is set as text. */
(() => {
	const PARTS = [["allocated", "allocated", "Bytes of the blocks that attached programs hold."],
		["cached", "cached", "Taken from the driver by attached programs, and in no block: neap clear returns it."],
		["contexts", "context", "What the driver takes for an attached process before its first allocation."],
		["not_attached", "not attached", "Held by processes whose allocator neap does not see."],
		["unexplained", "unexplained", "Used, and no process accounts for it."],
		["free", "free", "What the driver has left."], ["driver_reserved", "driver", "The driver's own part of the device."]];
	const HEADS = ["PID", "user", "GPU", "run time", "in all", "allocated", "cached", "context", "other", "process"];
	const COLUMNS = ["time_ms", "driver_reserved", "contexts", "allocated", "cached", "not_attached", "unexplained", "free"];
	const curves = new Map(); /* by index: points, oldest first */
	let everyMs = 1000, most = 600, seenMs = 0;

	const byId = (id) => document.getElementById(id);
	const make = (tag, name, text) => {
		const element = document.createElement(tag);
		if (name) element.className = name;
		if (text !== undefined) element.textContent = text;
		return element;
	};

	function size(bytes) {
		if (bytes === null || bytes === undefined) return "?";
		const sign = bytes < 0 ? "-" : "", units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
		let value = Math.abs(bytes), unit = 0;
		while (value >= 999.5 && unit + 1 < units.length) { value /= 1024; unit++; }
		return sign + (unit === 0 ? value : value.toPrecision(3)) + " " + units[unit];
	}

	function time(ns) {
		if (ns === null) return "?";
		const s = Math.floor(ns / 1e9), two = (n) => String(n).padStart(2, "0");
		const hms = (s >= 3600 ? Math.floor(s / 3600) % 24 + ":" : "") + two(Math.floor(s / 60) % 60) + ":" + two(s % 60);
		return s >= 86400 ? Math.floor(s / 86400) + "-" + hms.padStart(8, "0") : hms;
	}

	function section(device) {
		const made = make("section");
		made.id = "gpu" + device.index;
		const head = make("div", "head");
		head.append(make("h2", "", "GPU " + device.index + ": " + device.name), make("span", "quiet uuid", device.uuid), make("span", "figures"));
		const bar = make("div", "bar"), legend = make("div", "legend");
		bar.setAttribute("role", "img");
		for (const [key, name] of PARTS) {
			bar.append(make("span", key));
			const item = make("span"), value = make("span", "value"), word = make("button", "word", name);
			word.setAttribute("popovertarget", "word-" + key);
			item.append(make("i", key), word, " ", value);
			item.dataset.part = key;
			legend.append(item);
		}
		const canvas = make("canvas"), axis = make("div", "axis");
		canvas.setAttribute("role", "img");
		axis.append(make("span"), make("span", "", "now"));
		made.append(head, bar, legend, canvas, axis);
		byId("devices").append(made);
		return made;
	}

	function drawCurve(canvas, points, total) {
		const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
		canvas.width = width * ratio;
		canvas.height = height * ratio;
		const context = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
		const color = (key) => style.getPropertyValue("--" + key).trim();
		context.scale(ratio, ratio);
		context.fillStyle = color("soft");
		context.fillRect(0, 0, width, height);
		if (points.length === 0 || !total) return;
		const end = points[points.length - 1].time_ms, span = everyMs * most;
		const x = (ms) => width - (end - ms) / span * width;
		const low = points.map(() => 0);
		for (const key of ["driver_reserved", "allocated", "cached", "contexts", "not_attached", "unexplained"]) {
			context.beginPath();
			points.forEach((point, i) => context.lineTo(x(point.time_ms), height - (low[i] + Math.max(0, point[key])) / total * height));
			for (let i = points.length; i-- > 0;) context.lineTo(x(points[i].time_ms), height - low[i] / total * height);
			context.fillStyle = color(key);
			context.fill();
			points.forEach((point, i) => { low[i] += Math.max(0, point[key]); });
		}
		context.strokeStyle = color("line");
		for (let part = 1; part < 4; part++) {
			context.beginPath();
			context.moveTo(0, height * part / 4);
			context.lineTo(width, height * part / 4);
			context.stroke();
		}
	}

	/* As nvidia-smi counts it: without the driver's own part. */
	const used = (parts, total) => total - parts.free - parts.driver_reserved;

	function showDevice(device, nowMs) {
		const place = byId("gpu" + device.index) || section(device), ledger = device.ledger;
		const busy = device.utilization_percent === null ? "" : ", " + device.utilization_percent + " % busy";
		place.querySelector(".figures").textContent = size(used(ledger, ledger.total)) + " of " + size(ledger.total) + " used" + busy;
		const shown = [];
		PARTS.forEach(([key, name], i) => {
			const bytes = ledger[key];
			place.querySelector(".bar").children[i].style.flex = Math.max(0, bytes) + " 0 0";
			const item = place.querySelectorAll(".legend > span")[i];
			item.querySelector(".value").textContent = size(bytes);
			item.classList.toggle("bad", key === "unexplained" && bytes !== 0);
			shown.push(name + " " + size(bytes));
		});
		place.querySelector(".bar").setAttribute("aria-label", shown.join(", "));
		const points = curves.get(device.index) || [];
		if (!points.length || points[points.length - 1].time_ms < nowMs - everyMs / 2)
			points.push({time_ms: nowMs, ...ledger});
		while (points.length > most) points.shift();
		curves.set(device.index, points);
		const canvas = place.querySelector("canvas"), peak = Math.max(...points.map((point) => used(point, ledger.total)));
		canvas.setAttribute("aria-label", "memory in use, at most " + size(peak));
		drawCurve(canvas, points, ledger.total);
		const back = everyMs * most / 1000;
		place.querySelector(".axis").firstChild.textContent = (back >= 120 ? Math.round(back / 60) + " min" : Math.round(back) + " s") +
			" ago; at most " + size(peak) + " used";
	}

	function showProcesses(processes) {
		const rows = processes.slice().sort((a, b) => (b.bytes || 0) - (a.bytes || 0)).map((process) => {
			const row = make("tr"), own = (key) => process.attached ? size(process[key]) : "";
			for (const text of [process.pid, null, process.device, time(process.run_time_ns), size(process.bytes), own("allocated"),
				own("cached"), own("contexts"), own("unexplained")])
				row.append(text === null ? make("td", "", process.user || "?") : make("td", "right", String(text)));
			const name = make("td", "name", process.command || process.name || "?");
			if (!process.attached) name.append(make("span", "quiet", process.stray_context ? " (a stray context)" : " (not attached)"));
			row.append(name);
			Array.from(row.cells).forEach((cell, i) => { cell.dataset.head = HEADS[i]; });
			return row;
		});
		byId("processes").replaceChildren(...rows);
		byId("holders").hidden = rows.length === 0;
	}

	async function ask(path) {
		const answer = await fetch(path, {signal: AbortSignal.timeout(10000), cache: "no-store"});
		const json = await answer.json();
		if (!answer.ok) throw new Error(json.error || answer.statusText);
		return json;
	}

	async function readHistory() {
		const history = await ask("/api/history");
		everyMs = history.every_ms;
		most = history.points_most;
		for (const device of history.devices)
			curves.set(device.index, device.points.map((row) => Object.fromEntries(COLUMNS.map((key, i) => [key, row[i]]))));
	}

	async function look() {
		const state = byId("state");
		try {
			if (Date.now() - seenMs > 5 * everyMs) await readHistory(); /* at first, and after a pause */
			const now = await ask("/api"), nowMs = Math.round(now.time_ns / 1e6);
			byId("simulated").hidden = now.backend !== "sim";
			for (const device of now.devices) showDevice(device, nowMs);
			showProcesses(now.processes);
			byId("count").textContent = now.processes.length + " shown, a line for each GPU that one uses";
			state.textContent = "at " + new Date(nowMs).toLocaleTimeString();
			state.className = "quiet";
			seenMs = Date.now();
		} catch (error) {
			state.textContent = "no new figures: " + error.message;
			state.className = "bad";
		}
		setTimeout(look, Math.max(everyMs, 500));
	}

	for (const [key, name, means] of PARTS) {
		const word = make("div"), title = make("b", "", name);
		word.id = "word-" + key;
		word.popover = "auto";
		word.append(title, " " + means);
		document.querySelector("main").append(word);
	}
	look();
})();
