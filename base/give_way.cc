#include "base/give_way.h"

#include <sys/resource.h>
#include <unistd.h>

namespace meshwright {

void GiveWay() {
  constexpr int kNice = 10;
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
}

}  // namespace meshwright
