// GiveWay: for threads whose work is never urgent, on machines whose cores all compute.
//
// Thread rule: of the calling thread alone, for good.
#pragma once

namespace meshwright {

// The thread gets little of a core that others want.
void GiveWay();

}  // namespace meshwright
