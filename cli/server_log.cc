#include "cli/server_log.h"

#include "base/log.h"

namespace meshwright::cli {

Status StartLog(const GlobalArgs& global) {
  LogOptions log;
  MW_ASSIGN_OR_RETURN(log.level, ParseLogLevel(global.log_level));
  log.json = global.log_json;
  return InitLog(log);
}

}  // namespace meshwright::cli
