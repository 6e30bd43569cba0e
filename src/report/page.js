/* The curves of the page: one dygraph per run, from the numbers that lie beside it. */
(function () {
	"use strict";
	var UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

	function size(bytes) {
		var unit = 0;
		if (bytes === null || isNaN(bytes)) return "unknown";
		while (Math.abs(bytes) >= 1023.5 && unit < UNITS.length - 1) { bytes /= 1024; unit++; }
		return (unit === 0 ? bytes : Number(bytes.toPrecision(3))) + " " + UNITS[unit];
	}

	/* Ticks at multiples of a power of two, so that labels are round in GiB. */
	function sizeTicks(low, high) {
		var step = 1, ticks = [];
		while ((high - low) / step > 6) step *= 2;
		for (var value = Math.ceil(low / step) * step; value <= high; value += step)
			ticks.push({ v: value, label: size(value) });
		return ticks;
	}

	function draw(box) {
		var data = JSON.parse(box.querySelector("script").textContent);
		var plot = box.querySelector(".plot"), button = box.querySelector("button");
		var rows = [], peak = 0;
		for (var i = 0; i < data.time_us.length; i++) {
			rows.push([data.time_us[i] / 1e6, data.allocated[i], data.reserved[i], data.driver[i], data.total]);
			peak = Math.max(peak, data.allocated[i] || 0, data.reserved[i] || 0, data.driver[i] || 0);
		}
		/* A curve far below the device's total would be a flat line: then the total waits for a click. */
		var showTotal = data.total !== null && peak * 4 >= data.total;
		function range(total) { return [0, (total ? Math.max(data.total, peak) : peak || 1) * 1.06]; }
		var graph = new Dygraph(plot, rows, {
			labels: ["seconds", "allocated", "reserved", "driver", "device total"],
			labelsDiv: box.querySelector(".legend"),
			legend: "always",
			colors: ["#3a82c8", "#d98a2b", "#3d9c74", "#a0525a"],
			series: {
				"allocated": { fillGraph: true, strokeWidth: 1.5 },
				"reserved": { strokeWidth: 1.5, stepPlot: true },
				"driver": { strokeWidth: 1.5, strokePattern: [6, 3] },
				"device total": { strokeWidth: 1.5, strokePattern: [2, 4], highlightCircleSize: 0 }
			},
			fillAlpha: 0.14,
			connectSeparatedPoints: true,
			visibility: [true, true, true, showTotal],
			valueRange: range(showTotal),
			gridLineColor: "rgba(128,128,128,0.22)",
			axisLineColor: "rgba(128,128,128,0.5)",
			axes: {
				x: { valueFormatter: function (t) { return t.toFixed(3) + " s"; },
					axisLabelFormatter: function (t) { return Number(t.toPrecision(4)) + " s"; } },
				y: { valueFormatter: size, axisLabelWidth: 66, ticker: sizeTicks }
			}
		});
		if (data.total === null) { button.hidden = true; return; }
		function label() { button.textContent = showTotal ? "fit to the curve" : "show the device's total"; }
		button.addEventListener("click", function () {
			showTotal = !showTotal;
			graph.setVisibility(3, showTotal);
			graph.updateOptions({ valueRange: range(showTotal) });
			label();
		});
		label();
	}

	Array.prototype.forEach.call(document.querySelectorAll(".curve"), draw);
})();
