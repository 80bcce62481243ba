// Starts `gpulint lsp`; everything else is the server's.
"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

const LANGUAGES = ["yaml", "json", "jsonc", "toml", "shellscript"];

/** @type {LanguageClient | undefined} */
let client;

function create() {
  const settings = vscode.workspace.getConfiguration("gpulint");
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath ?? "";
  const command = settings.get("path", "gpulint").replaceAll("${workspaceFolder}", folder);
  const selector = LANGUAGES.flatMap((language) => [
    { language, scheme: "file" },
    { language, scheme: "untitled" },
  ]);
  return new LanguageClient(
    "gpulint",
    "gpulint",
    { command, args: ["lsp", ...settings.get("args", [])], options: folder ? { cwd: folder } : undefined },
    { documentSelector: selector },
  );
}

async function start() {
  client = create();
  try {
    await client.start();
  } catch (error) {
    vscode.window.showErrorMessage(
      `gpulint did not start (${error.message ?? error}). Set gpulint.path to the command; ` +
        "it needs the extra lsp: pip install 'gpulint[lsp]'",
    );
  }
}

async function stop() {
  const running = client;
  client = undefined;
  if (running?.needsStop()) await running.stop();
}

async function activate(context) {
  const restart = async () => {
    await stop();
    await start();
  };
  context.subscriptions.push(
    vscode.commands.registerCommand("gpulint.restart", restart),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("gpulint.path") || event.affectsConfiguration("gpulint.args")) return restart();
    }),
  );
  await start();
}

module.exports = { activate, deactivate: stop };
