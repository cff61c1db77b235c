#include "kernels/usable_cpus.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

namespace kernels {
namespace {

int CpusOfAffinity() {
  // A set of a fixed size is too small on machines with more than 1024 CPUs: EINVAL.
  for (int most = CPU_SETSIZE; most <= (1 << 20); most *= 2) {
    std::vector<cpu_set_t> set(most / CPU_SETSIZE);
    const size_t bytes = set.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, set.data()) == 0) return CPU_COUNT_S(bytes, set.data());
  }
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Quota and period as "cpu.max" of version 2 has them, "200000 100000" or "max 100000"; so do those
// of version 1 if they are put together, whose quota is negative if there is none.
std::optional<double> Share(const std::string& text) {
  std::istringstream numbers(text);
  double quota = 0, period = 0;
  if (!(numbers >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> Least(std::optional<double> a, std::optional<double> b) {
  if (!a.has_value() || !b.has_value()) return a.has_value() ? a : b;
  return std::min(*a, *b);
}

// The least share of the group at `path` and those above, up to `root`. In a container the path may
// be the host's, which is not there; the container's own group is then at `root`.
std::optional<double> ShareOf(const std::string& root, std::string path, bool version_2) {
  std::optional<double> least;
  for (;;) {
    const std::string folder = root + path + "/";
    least = Least(least, Share(version_2 ? Contents(folder + "cpu.max")
                                         : Contents(folder + "cpu.cfs_quota_us") + " " +
                                               Contents(folder + "cpu.cfs_period_us")));
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return least;
    path.resize(slash);
  }
}

}  // namespace

int CpusOfQuota(const std::string& proc_cgroup, const std::string& root) {
  std::optional<double> least;
  std::istringstream lines(proc_cgroup);
  for (std::string line; std::getline(lines, line);) {  // "4:cpu,cpuacct:/path", "0::/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      least = Least(least, ShareOf(root, path, /*version_2=*/true));
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      least = Least(least, ShareOf(root + "/" + controllers, path, /*version_2=*/false));
      least = Least(least, ShareOf(root + "/cpu", path, /*version_2=*/false));
    }
  }
  return least.has_value() ? std::max(1, static_cast<int>(std::ceil(std::min(*least, 1e6)))) : 0;
}

int UsableCpus() {
  const int cpus = std::max(1, CpusOfAffinity());
  const int quota = CpusOfQuota(Contents("/proc/self/cgroup"), "/sys/fs/cgroup");
  return quota > 0 ? std::min(cpus, quota) : cpus;
}

}  // namespace kernels
