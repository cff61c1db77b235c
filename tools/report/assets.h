// The style and the script of the page, report.css and the .js files of this folder.
#ifndef TOOLS_REPORT_ASSETS_H_
#define TOOLS_REPORT_ASSETS_H_

namespace tools {

extern const char kReportStyle[];
extern const char kReportScript[];

}  // namespace tools

#endif  // TOOLS_REPORT_ASSETS_H_
