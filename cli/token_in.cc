#include "cli/token_in.h"

#include <fmt/format.h>

#include "base/secret_file.h"
#include "base/text.h"

namespace meshwright::cli {

Result<LiveToken> TokenIn(const char* option, const std::string& path) {
  if (path.empty()) return LiveToken();
  MW_ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(path));
  const std::string token(Trim(text));
  if (!token.empty()) return LiveToken::InFile(path);
  return Fail(
      InvalidArgument(fmt::format("{} {} is empty; write a token to it: (umask 077; head -c 24 "
                                  "/dev/urandom | base64 > {})",
                                  option, path, path)));
}

}  // namespace meshwright::cli
