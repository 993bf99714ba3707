// Starts `headroom lsp` for Python files and notebooks.
const { commands, window, workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

async function start() {
  const command = workspace.getConfiguration("headroom").get("path") || "headroom";
  const server = { command, args: ["lsp"] };
  const options = {
    documentSelector: [{ language: "python" }],
    synchronize: { configurationSection: "headroom" },
  };
  client = new LanguageClient("headroom", "Headroom", server, options);
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    window.showErrorMessage(`Headroom: cannot start ${command}: ${error.message}. Set headroom.path to the command.`);
  }
}

async function stop() {
  const running = client;
  client = undefined;
  await running?.stop();
}

exports.activate = async (context) => {
  const restart = async () => {
    await stop();
    await start();
  };
  context.subscriptions.push(commands.registerCommand("headroom.restart", restart));
  context.subscriptions.push(
    workspace.onDidChangeConfiguration((event) => event.affectsConfiguration("headroom.path") && restart()),
  );
  await start();
};

exports.deactivate = stop;
