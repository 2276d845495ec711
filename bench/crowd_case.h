// The sessions of many workers with a controller, held by one process: what a large cluster's
// controller hears, without its machines.
//
// Each has a connection of its own, as a worker has, registers devices, beats as it was told, and
// answers what it is sent: it loads no mesh and says so, so that no job runs on it. Some of them
// may be cut off and come back, as a worker that is started again.
#pragma once

namespace meshwright::bench {

// mw_bench crowd ADDRESS [--workers N] [--devices N] [--rejoins PER_S]: a line of JSON when all
// have joined, and one more at the end, which is that of its stdin.
int CrowdMain(int argc, char** argv);

}  // namespace meshwright::bench
